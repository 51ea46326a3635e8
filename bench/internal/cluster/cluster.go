// Package cluster is the API server that the measured processes talk to: one in
// the process of the benchmark, so that what it needs is not in theirs.
package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/internal/apitest"
)

// changesPerRound is the part of the pods that a round of Change updates: 1%.
const changesPerRound = 100

// Cluster is a server with a fixed number of pods, whose methods are for one
// goroutine.
type Cluster struct {
	server *apitest.Server
	shape  Shape
	pods   int
	// round counts calls of Change.
	round int
}

// New starts a server with this many pods. The caller must Close it. While it
// works, progress is called with the number of pods there are, if it is not nil.
func New(shape Shape, pods int, progress func(done int)) (*Cluster, error) {
	// Everything that changes while a process is not running must be in the window:
	// what does not resume is another measurement.
	server, err := apitest.New(apitest.Options{Window: max(10_000, pods)})
	if err != nil {
		return nil, err
	}
	c := &Cluster{server: server, shape: shape, pods: pods}
	if err := c.fill(progress); err != nil {
		_ = server.Close()
		return nil, fmt.Errorf("filling the server: %w", err)
	}
	return c, nil
}

// fill creates the pods in the order of their keys, in which the server keeps
// them: each then goes to the end.
func (c *Cluster) fill(progress func(int)) error {
	type entry struct {
		key string
		i   int
	}
	order := make([]entry, c.pods)
	for i := range order {
		pod := c.shape.Pod(i)
		order[i] = entry{pod.Namespace + "/" + pod.Name, i}
	}
	slices.SortFunc(order, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for n, e := range order {
		if err := c.server.Create(c.shape.Pod(e.i)); err != nil {
			return err
		}
		if progress != nil {
			progress(n + 1)
		}
	}
	return nil
}

// URL is the address of the server.
func (c *Cluster) URL() string { return c.server.URL() }

// Pods is the number of pods.
func (c *Cluster) Pods() int { return c.pods }

// Shape is what the pods look like.
func (c *Cluster) Shape() Shape { return c.shape }

// Change updates one pod in a hundred, spread over all, and returns how many. Each
// of a hundred rounds takes others.
func (c *Cluster) Change() (updates int, err error) {
	c.round++
	for i := c.round % changesPerRound; i < c.pods; i += changesPerRound {
		pod := c.shape.Pod(i)
		pod.Annotations = addTo(pod.Annotations, "example.com/round", strconv.Itoa(c.round))
		if err := c.server.Update(runtime.Object(pod)); err != nil {
			return updates, fmt.Errorf("changing a pod: %w", err)
		}
		updates++
	}
	return updates, nil
}

func addTo(annotations map[string]string, name, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	return annotations
}

// Expire makes the server forget all changes so far, so that who has not seen them
// must list.
func (c *Cluster) Expire() { c.server.Compact() }

// Outage calls change while nobody reaches the server, and lets it forget what has
// changed: everybody must list afterwards.
func (c *Cluster) Outage(change func() error) error {
	if err := c.server.Down(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	c.Expire()
	return c.server.Up()
}

// Close ends the server.
func (c *Cluster) Close() error { return c.server.Close() }
