package subject

import (
	"path/filepath"
	"testing"

	"github.com/warmcache/warmcache/bench/internal/cluster"
)

// TestSubject_EveryKindDoesTheSame is what makes them comparable.
func TestSubject_EveryKindDoesTheSame(t *testing.T) {
	const pods = 200
	c, err := cluster.New(cluster.Small, pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			x, err := New(Spec{Kind: kind, Host: c.URL(), File: filepath.Join(t.TempDir(), "cache.db")})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := x.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			updates, err := c.Change()
			if err == nil {
				err = x.Await(t.Context(), int64(updates))
			}
			if err == nil {
				err = x.Settle(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			node := []string{cluster.Small.Node(0)}
			if n, err := x.Query(node); n != cluster.PodsPerNode || err != nil {
				t.Errorf("a node has %d pods, %v", n, err)
			}
			if n := x.Objects(); n != pods || x.Traffic().Lists() != 1 {
				t.Errorf("%d objects after %d lists, want %d after 1", n, x.Traffic().Lists(), pods)
			}
		})
	}
}
