package main

import (
	"math/rand/v2"
	"time"

	"github.com/warmcache/warmcache/bench/internal/cluster"
	"github.com/warmcache/warmcache/bench/internal/process"
)

// The phases. Where something has changed, it is one pod in a hundred.
const (
	phaseCold      = "cold start, streamed list"
	phasePaged     = "cold start, paged list"
	phaseSteady    = "updates of 10%"
	phaseOutage    = "relist while running"
	phaseResume    = "restart, resumed"
	phaseReadsOnly = "restart, reads only"
	phaseRelist    = "restart, relist"
	phaseQueries   = "1000 index queries"
)

const (
	// steadyRounds of changes are the updates of phaseSteady.
	steadyRounds = 10
	// queries is how many nodes are asked for in phaseQueries.
	queries = 1000
	// querySeed picks the nodes, the same for all subjects.
	querySeed = 1
)

// realPhases are the life of an informer: it starts, lives through updates and the
// loss of its server, and is restarted.
func realPhases(c *course) error {
	const file = "cache.db"
	err := c.with(start{file: file}, func(p *process.Process) error {
		if err := c.sync(phaseCold, 1, p); err != nil {
			return err
		}
		if err := c.steady(p); err != nil {
			return err
		}
		return c.outage(p)
	})
	if err != nil {
		return err
	}
	if err := c.restarts(file, nil); err != nil {
		return err
	}
	return c.run(phasePaged, 1, start{file: "paged.db", paged: true})
}

// smallPhases are those that a large file makes a difference for.
func smallPhases(c *course) error {
	const file = "cache.db"
	if err := c.run(phaseCold, 1, start{file: file}); err != nil {
		return err
	}
	return c.restarts(file, c.query)
}

// restarts are the ways to go on from a file. then is called with the process of
// the first, if it is not nil.
func (c *course) restarts(file string, then func(*process.Process) error) error {
	if _, err := c.cluster.Change(); err != nil {
		return err
	}
	err := c.with(start{file: file}, func(p *process.Process) error {
		err := c.sync(phaseResume, 0, p)
		if err == nil && then != nil {
			err = then(p)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := c.cluster.Change(); err != nil {
		return err
	}
	if err := c.run(phaseReadsOnly, 0, start{file: file, readsOnly: true}); err != nil {
		return err
	}
	if _, err := c.cluster.Change(); err != nil {
		return err
	}
	c.cluster.Expire()
	return c.run(phaseRelist, 1, start{file: file})
}

// steady updates pods as fast as the server takes it.
func (c *course) steady(p *process.Process) error {
	if err := p.Mark(); err != nil {
		return err
	}
	since, updates := time.Now(), 0
	for range steadyRounds {
		n, err := c.cluster.Change()
		if err != nil {
			return err
		}
		updates += n
	}
	r, err := p.Await(phaseSteady, updates, since)
	return c.record(phaseSteady, r, err, 0, c.cluster.Pods())
}

// outage makes the process list again, after changes that it could not watch. The
// time includes what it waits for before it tries again.
func (c *course) outage(p *process.Process) error {
	if err := p.Mark(); err != nil {
		return err
	}
	updates := 0
	err := c.cluster.Outage(func() (err error) {
		updates, err = c.cluster.Change()
		return err
	})
	if err != nil {
		return err
	}
	r, err := p.Await(phaseOutage, updates, time.Now())
	return c.record(phaseOutage, r, err, 1, c.cluster.Pods())
}

// query asks for nodes that are all full.
func (c *course) query(p *process.Process) error {
	random := rand.New(rand.NewPCG(querySeed, 0))
	full := c.cluster.Pods() / cluster.PodsPerNode
	nodes := make([]string, queries)
	for i := range nodes {
		nodes[i] = c.cluster.Shape().Node(random.IntN(full) * cluster.PodsPerNode)
	}
	r, err := p.Query(phaseQueries, nodes)
	return c.record(phaseQueries, r, err, 0, queries*cluster.PodsPerNode)
}
