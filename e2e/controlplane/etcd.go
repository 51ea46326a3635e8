package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
)

// newEtcd describes an etcd with one member, called member, which is what tells
// it apart from the etcd of another test.
func newEtcd(binary, dir, member string) *Server {
	return &Server{
		name:   "etcd",
		binary: binary,
		dir:    dir,
		args: func(port int) []string {
			url := "http://" + hostPort(port)
			return []string{
				"--name=" + member,
				"--data-dir=" + filepath.Join(dir, "etcd"),
				"--listen-client-urls=" + url,
				"--advertise-client-urls=" + url,
				// Nobody connects to the only member.
				"--listen-peer-urls=http://127.0.0.1:0",
				// Tests kill processes, not machines.
				"--unsafe-no-fsync",
				"--log-level=warn",
			}
		},
		ready: func(ctx context.Context, port int) error { return etcdReady(ctx, port, member) },
	}
}

// probeClient keeps no connection: nobody would close it.
var probeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// etcdReady returns nil if the etcd on port has a leader and is the one that
// has the given member.
func etcdReady(ctx context.Context, port int, member string) error {
	// A linearizable read, so it needs the leader.
	url := "http://" + hostPort(port) + "/v3/cluster/member/list"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(`{"linearizable":true}`))
	if err != nil {
		return err
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return fmt.Errorf("reading the members of etcd: %w", err)
	}
	if len(list.Members) != 1 || list.Members[0].Name != member {
		return fmt.Errorf("etcd on port %d has members %v, not %s", port, list.Members, member)
	}
	return nil
}
