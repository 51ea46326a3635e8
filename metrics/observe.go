package metrics

import (
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// observed is an informer that was not given a name.
type observed struct {
	informer cache.SharedIndexInformer
	// label is what it was reported as last. It is settled once the informer runs
	// and its identity is known, so that its series go on.
	label   string
	settled bool
}

// Observe reports an informer from now on, until it has stopped, under a name that it
// has by itself: its identity, such as "apps/v1/deployments?form=typed". Until the
// identity is known, which may be when the informer runs or never, it is the type of
// the objects. If the name is taken, by another informer with this identity or by
// Add, it gets a suffix, such as "#2"; among informers of one identity that start
// together, the one that is persisted goes without.
//
// Informers that are not warmcache's, that were observed before, or that Add reports
// are left alone. A collector is an Observer of package factory.
func (c *Collector) Observe(inf cache.SharedIndexInformer) {
	if inf == nil {
		return
	}
	if _, ok := informer.StatusOf(inf); !ok {
		return
	}
	c.forgetStopped() // there may be nobody who scrapes
	c.mu.Lock()
	defer c.mu.Unlock()
	known := func(o *observed) bool { return sameInformer(o.informer, inf) }
	if !slices.ContainsFunc(c.mu.observed, known) {
		c.mu.observed = append(c.mu.observed, &observed{informer: inf})
	}
}

// sameInformer also sees through wrappers, which have the controller of what they
// wrap. Those of this module can be compared.
func sameInformer(a, b cache.SharedInformer) bool { return a.GetController() == b.GetController() }

// forgetStopped removes observed informers that have stopped.
func (c *Collector) forgetStopped() {
	c.mu.RLock()
	all := slices.Clone(c.mu.observed)
	c.mu.RUnlock()
	stopped := map[*observed]bool{}
	for _, o := range all {
		stopped[o] = o.informer.IsStopped()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.observed = slices.DeleteFunc(c.mu.observed, func(o *observed) bool { return stopped[o] })
}

// observation is an observed informer and its status.
type observation struct {
	*observed
	status informer.Status
	name   string
}

// observations returns the observed informers with their names, in the order in
// which they were observed but for those that are persisted, which come first.
func (c *Collector) observations() []observation {
	c.forgetStopped()
	c.mu.RLock()
	all := slices.Clone(c.mu.observed)
	for _, named := range c.mu.informers {
		all = slices.DeleteFunc(all, func(o *observed) bool { return sameInformer(o.informer, named) })
	}
	c.mu.RUnlock()
	list := make([]observation, len(all))
	for i, o := range all {
		list[i].observed = o
		list[i].status, _ = informer.StatusOf(o.informer)
	}
	slices.SortStableFunc(list, func(a, b observation) int {
		return int(truth(b.status.Persistent) - truth(a.status.Persistent))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nameLocked(list)
	return list
}

// nameLocked gives each a name that no other has: first to those whose name is
// settled.
func (c *Collector) nameLocked(list []observation) {
	taken := map[string]bool{}
	for name := range c.mu.informers {
		taken[name] = true
	}
	for _, o := range c.mu.observed { // also those that are not in the list
		if o.settled {
			taken[o.label] = true
		}
	}
	for i := range list {
		if o := &list[i]; o.settled {
			o.name = o.label
		}
	}
	for i := range list {
		o := &list[i]
		if o.settled {
			continue
		}
		base := baseName(o.status)
		o.name = base
		for n := 2; taken[o.name]; n++ {
			o.name = fmt.Sprintf("%s#%d", base, n)
		}
		taken[o.name] = true
		o.label, o.settled = o.name, o.status.Phase != reflector.PhaseStarting
	}
}

func baseName(s informer.Status) string {
	if s.Identity == (store.Identity{}) {
		return s.Type
	}
	return s.Identity.String()
}
