package factory

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// WithResidency says where the informers of the factory have their objects.
// informer.Memory, the default, has all of them decoded in memory, as client-go
// does. With informer.Disk they stay in the store, which it needs, and each
// informer has a cache of its own for what is used most: at most memoryBudget bytes
// of decoded objects, of which 0 is indexer.DefaultMemoryBudget and
// indexer.MinMemoryBudget the least. With Memory there is no budget.
//
// WithResidencyFor and WithResidencyForResource say it of some types, and win over
// this, in whatever order they are given.
//
// What is not persisted is in memory, whatever these options say: types of
// WithoutPersistence and WithoutPersistenceOf, Secrets without WithPlaintextSecrets,
// an informer whose identity is in use, and all others whose status has an error of
// Durability when they start. The status says where the objects are (Residency).
// docs/operations.md says what else is different with Disk.
func WithResidency(r informer.Residency, memoryBudget int64) Option {
	return option("WithResidency", func(c *config) { c.residency = residency{r, memoryBudget} })
}

// WithResidencyFor is WithResidency for informers of the types of the given objects.
// For an object and its resource (WithResidencyForResource) the last option counts.
// Disk for a type of WithoutPersistence is an error.
func WithResidencyFor(r informer.Residency, memoryBudget int64, objs ...runtime.Object) Option {
	return option("WithResidencyFor", func(c *config) {
		for _, obj := range objs {
			rule := residencyRule{residency: residency{r, memoryBudget}, option: "WithResidencyFor", object: reflect.TypeOf(obj)}
			c.residencyRules = append(c.residencyRules, rule)
		}
	})
}

// WithResidencyForResource is WithResidencyFor for resources, by which factories of
// dynamic and metadata clients name what they hold.
func WithResidencyForResource(r informer.Residency, memoryBudget int64, resources ...schema.GroupVersionResource) Option {
	return option("WithResidencyForResource", func(c *config) {
		for _, gvr := range resources {
			rule := residencyRule{residency: residency{r, memoryBudget}, option: "WithResidencyForResource", resource: gvr}
			c.residencyRules = append(c.residencyRules, rule)
		}
	})
}

// residency is where an informer has its objects.
type residency struct {
	in     informer.Residency
	budget int64
}

// residencyRule is what an option says of a Go type or, if there is none, of a
// resource.
type residencyRule struct {
	residency
	option   string
	object   reflect.Type
	resource schema.GroupVersionResource
}

func (r residencyRule) covers(object reflect.Type, gvr schema.GroupVersionResource) bool {
	if r.object != nil {
		return r.object == object
	}
	return r.resource == gvr
}

// residencyOf returns what the options say of the residency of t.
func (c *config) residencyOf(t target) residency {
	if rule, ok := c.residencyRule(reflect.TypeOf(t.example), t.gvr); ok {
		return rule.residency
	}
	return c.residency
}

// residencyRule returns the last one for a type or its resource.
func (c *config) residencyRule(object reflect.Type, gvr schema.GroupVersionResource) (rule residencyRule, ok bool) {
	for _, rule := range slices.Backward(c.residencyRules) {
		if rule.covers(object, gvr) {
			return rule, true
		}
	}
	return residencyRule{}, false
}

// validateResidency reports the first option about residency that cannot be meant.
func (c *config) validateResidency(db store.Store) error {
	if err := c.residency.validate("WithResidency", db); err != nil {
		return err
	}
	for _, rule := range c.residencyRules {
		switch {
		case rule.option == "WithResidencyFor" && rule.object == nil:
			return invalid("WithResidencyFor: an object is nil")
		case rule.object == nil && rule.resource.Empty():
			return invalid("WithResidencyForResource: a resource is empty")
		}
		if err := rule.validate(rule.option, db); err != nil {
			return err
		}
	}
	return c.validateUnpersisted()
}

func (r residency) validate(option string, db store.Store) error {
	if err := indexer.ValidateResidency(r.in, r.budget); err != nil {
		return invalid("%s: %w", option, err)
	}
	if r.in == informer.Disk && db == nil {
		return invalid("%s: Disk needs a store; open one, or leave the option out", option)
	}
	return nil
}

// validateUnpersisted reports a type that is to be on the disk and not to be written
// there.
func (c *config) validateUnpersisted() error {
	for t := range c.memoryOnly {
		if rule, _ := c.residencyRule(t, schema.GroupVersionResource{}); rule.in == informer.Disk {
			return invalid("WithResidencyFor: %v cannot be on disk, WithoutPersistence keeps it in memory", t)
		}
	}
	for gvr := range c.memoryOnlyResources {
		if rule, _ := c.residencyRule(nil, gvr); rule.in == informer.Disk {
			return invalid("WithResidencyForResource: %v cannot be on disk, WithoutPersistenceOf keeps it in memory", gvr)
		}
	}
	return nil
}

// reside says to an informer that was given a store where it has its objects.
func (c *config) reside(t target, o *informer.Options) {
	if o.Store == nil {
		return // in memory, where else
	}
	r := c.residencyOf(t)
	o.Residency, o.MemoryBudget = r.in, r.budget
}
