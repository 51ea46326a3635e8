package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Options configure a control plane. The zero value is a good default.
type Options struct {
	// Dir holds data, credentials and logs, and stays after Stop. If empty, a
	// temporary directory is made, and removed by Stop.
	Dir string
	// APIServerArgs are appended to the command line of the first API server,
	// for example "--default-watch-cache-size=1".
	APIServerArgs []string
	// SameAccess, if set, is a control plane whose clients may connect to this one
	// as well: it has the same CA and the same tokens, as a cluster that was set up
	// anew behind the address of an earlier one. Nothing else is the same, not even
	// the keys of service accounts.
	SameAccess *ControlPlane
	// Progress receives a line now and then while the servers are being built.
	// Standard error if nil.
	Progress io.Writer
}

// ControlPlane is an etcd with one API server or more.
type ControlPlane struct {
	// Etcd holds the data of all API servers. They survive its restart.
	Etcd *Server
	// API is the API server that Start started.
	API *APIServer

	bin     Binaries
	dir     string
	tempDir bool
	// member is the name of etcd's only member.
	member string
	creds  *credentials

	mu struct {
		sync.Mutex
		added []*APIServer
	}
}

// Start builds the servers if need be, starts them and waits until they are
// ready. After an error nothing is left running.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	bin, err := Build(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	cp, err := newControlPlane(bin, opts)
	if err != nil {
		return nil, err
	}
	if err := cp.start(ctx, opts.APIServerArgs); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

func newControlPlane(bin Binaries, opts Options) (*ControlPlane, error) {
	cp := &ControlPlane{bin: bin, dir: opts.Dir, member: strings.ToLower(rand.Text())}
	if cp.dir == "" {
		temp, err := os.MkdirTemp("", "warmcache-e2e-")
		if err != nil {
			return nil, fmt.Errorf("creating the directory of a control plane: %w", err)
		}
		cp.dir, cp.tempDir = temp, true
	}
	var access *credentials
	if opts.SameAccess != nil {
		access = opts.SameAccess.creds
	}
	var err error
	if cp.creds, err = newCredentials(cp.dir, access); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	cp.Etcd = newEtcd(bin.Etcd, cp.dir, cp.member)
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context, apiServerArgs []string) error {
	if err := cp.Etcd.startFirst(ctx); err != nil {
		return err
	}
	var err error
	cp.API, err = cp.startAPIServer(ctx, filepath.Join(cp.dir, "apiserver"), apiServerArgs)
	return err
}

func (cp *ControlPlane) startAPIServer(ctx context.Context, dir string, args []string) (*APIServer, error) {
	api, err := newAPIServer(cp.bin.APIServer, dir, cp.Etcd, cp.creds)
	if err != nil {
		return nil, err
	}
	api.SetArgs(args...)
	if err := api.startFirst(ctx); err != nil {
		return nil, err
	}
	return api, nil
}

// AddAPIServer starts another API server on the same etcd, with the same
// credentials, a port and an audit log of its own, and the given extra
// arguments. Its watch caches lag behind those of the first one at times, as
// behind a load balancer.
func (cp *ControlPlane) AddAPIServer(ctx context.Context, args ...string) (*APIServer, error) {
	dir, err := os.MkdirTemp(cp.dir, "apiserver-")
	if err != nil {
		return nil, fmt.Errorf("creating the directory of an API server: %w", err)
	}
	api, err := cp.startAPIServer(ctx, dir, args)
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.mu.added = append(cp.mu.added, api)
	return api, nil
}

// DataDir returns the data directory of etcd. Restore replaces what is in it.
func (cp *ControlPlane) DataDir() string {
	return filepath.Join(cp.dir, "etcd")
}

// Stop ends all servers, API servers first, and removes the directory if Start
// made it. Further calls do nothing. The error is about that directory only.
func (cp *ControlPlane) Stop() error {
	for _, server := range cp.servers() {
		server.Stop()
	}
	if !cp.tempDir {
		return nil
	}
	if err := os.RemoveAll(cp.dir); err != nil {
		return fmt.Errorf("removing the directory of the control plane: %w", err)
	}
	return nil
}

// servers returns what has been started so far, in the order to stop it.
func (cp *ControlPlane) servers() []*Server {
	all := cp.apiServers()
	if cp.Etcd != nil {
		all = append(all, cp.Etcd)
	}
	return all
}

// apiServers returns the API servers that have been started so far, whether they
// run or not.
func (cp *ControlPlane) apiServers() []*Server {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	var all []*Server
	for _, api := range append(slices.Clone(cp.mu.added), cp.API) {
		if api != nil {
			all = append(all, api.Server)
		}
	}
	return all
}
