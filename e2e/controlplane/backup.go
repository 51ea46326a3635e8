package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup is a copy of all that etcd held at one moment. It is gone after Stop of
// the control plane that it was made of, if that had a temporary directory.
type Backup struct {
	path string
}

// RestoreOptions are those of etcdutl snapshot restore.
type RestoreOptions struct {
	// Bump is added to the revision of the backup, and everything up to there is
	// marked as compacted, so that no client can go on from a revision of before. 0
	// puts etcd back as it was: it will give revisions that clients have seen to
	// other changes.
	Bump uint64
}

// Backup makes a copy of what etcd holds, as etcdctl snapshot save does, while
// everything goes on.
func (cp *ControlPlane) Backup(ctx context.Context) (Backup, error) {
	b := Backup{path: filepath.Join(cp.dir, "backup-"+rand.Text())}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, cp.etcdConfig(), b.path); err != nil {
		return Backup{}, fmt.Errorf("making a backup of etcd: %w", err)
	}
	return b, nil
}

// Restore stops the API servers and etcd, gives etcd the data of a backup, and
// starts them again.
func (cp *ControlPlane) Restore(ctx context.Context, b Backup, o RestoreOptions) error {
	running := slices.DeleteFunc(cp.apiServers(), func(api *Server) bool { return api.PID() == 0 })
	for _, api := range running {
		api.Stop()
	}
	cp.Etcd.Stop()
	if err := cp.replaceData(b, o); err != nil {
		return err
	}
	for _, server := range append([]*Server{cp.Etcd}, running...) {
		if err := server.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replaceData puts the data of a backup in the place of those that a stopped etcd
// has.
func (cp *ControlPlane) replaceData(b Backup, o RestoreOptions) error {
	// What an etcd that is not told any has.
	const peerURL = "http://localhost:2380"
	restored := filepath.Join(cp.dir, "restored-"+rand.Text())
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:   b.path,
		Name:           cp.member,
		OutputDataDir:  restored,
		PeerURLs:       []string{peerURL},
		InitialCluster: cp.member + "=" + peerURL,
		RevisionBump:   o.Bump,
		MarkCompacted:  o.Bump > 0,
	})
	if err != nil {
		return fmt.Errorf("restoring a backup of etcd: %w", err)
	}
	if err := errors.Join(os.RemoveAll(cp.DataDir()), os.Rename(restored, cp.DataDir())); err != nil {
		return fmt.Errorf("replacing the data of etcd: %w", err)
	}
	return nil
}

// AdvanceTo writes to etcd, where no API server looks, until it is at a revision,
// which is the resourceVersion that the API servers then have. It returns the
// revision that etcd has come to: a greater one if it was past that already, or if
// somebody else has written meanwhile.
func (cp *ControlPlane) AdvanceTo(ctx context.Context, revision int64) (int64, error) {
	client, err := clientv3.New(cp.etcdConfig())
	if err != nil {
		return 0, fmt.Errorf("connecting to etcd: %w", err)
	}
	defer func() { _ = client.Close() }() // Nothing is lost with it.
	const key = "/warmcache-e2e/revision"
	current, err := client.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of etcd: %w", err)
	}
	now := current.Header.GetRevision()
	for now < revision {
		put, err := client.Put(ctx, key, "")
		if err != nil {
			return now, fmt.Errorf("advancing the revision of etcd: %w", err)
		}
		now = put.Header.GetRevision()
	}
	return now, nil
}

func (cp *ControlPlane) etcdConfig() clientv3.Config {
	return clientv3.Config{Endpoints: []string{hostPort(cp.Etcd.Port())}, Logger: zap.NewNop()}
}
