package restmapper

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/restmapper"

	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/store"
)

// Identity is the collection in which discovery is kept, an object for each API
// group.
var Identity = store.Identity{Group: "discovery.warmcache", Version: "v1", Resource: "apigroups", Form: store.FormTyped}

// owner says in errors and listings for whom the collection is open.
const owner = "RESTMapper"

// apiGroup is what is stored of an API group.
type apiGroup struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Order is the group's place in the answer of the server, which decides
	// between kinds of the same name.
	Order int
	restmapper.APIGroupResources
}

// nameOf names a group; the core group has no name of its own.
func nameOf(group *restmapper.APIGroupResources) string {
	if group.Group.Name == "" {
		return "core"
	}
	return group.Group.Name
}

// DeepCopyObject implements runtime.Object.
func (g *apiGroup) DeepCopyObject() runtime.Object {
	c := &apiGroup{TypeMeta: g.TypeMeta, Order: g.Order}
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	g.Group.DeepCopyInto(&c.Group)
	c.VersionedResources = make(map[string][]metav1.APIResource, len(g.VersionedResources))
	for version, resources := range g.VersionedResources {
		for i := range resources {
			c.VersionedResources[version] = append(c.VersionedResources[version], *resources[i].DeepCopy())
		}
	}
	return c
}

// storage keeps API groups in a store. The collection is only open while it is
// used, so that any number of mappers can share it, one after the other.
type storage struct{ db store.Store }

// open is held while a storage of this process has its collection open.
var open sync.Mutex

// load returns what is stored, in the order it had; nothing without a store.
func (s storage) load() (groups []*restmapper.APIGroupResources, err error) {
	err = s.with(func(x *indexer.Indexer) error {
		stored := x.List()
		slices.SortFunc(stored, func(a, b any) int { return cmp.Compare(a.(*apiGroup).Order, b.(*apiGroup).Order) })
		for _, obj := range stored {
			groups = append(groups, &obj.(*apiGroup).APIGroupResources)
		}
		return nil
	})
	return groups, err
}

// save replaces what is stored, unless it is the same.
func (s storage) save(groups, stored []*restmapper.APIGroupResources) error {
	if reflect.DeepEqual(groups, stored) {
		return nil
	}
	return s.with(func(x *indexer.Indexer) error {
		objects := make([]any, len(groups))
		for i, group := range groups {
			objects[i] = &apiGroup{ObjectMeta: metav1.ObjectMeta{Name: nameOf(group)}, Order: i, APIGroupResources: *group}
		}
		return x.Replace(objects, "")
	})
}

// with calls fn with the collection, which is made durable afterwards.
func (s storage) with(fn func(*indexer.Indexer) error) error {
	if s.db == nil {
		return nil
	}
	open.Lock()
	defer open.Unlock()
	c, err := codec.New(&apiGroup{})
	if err != nil {
		return err
	}
	collection, err := s.db.Collection(Identity, owner)
	if err != nil {
		return fmt.Errorf("opening the collection of API resources: %w", err)
	}
	x := indexer.New(indexer.Options{})
	_, err = x.Attach(collection, c, c.Fingerprint())
	if err == nil {
		err = x.Load(context.Background())
	}
	if err == nil {
		err = fn(x)
	}
	if detachErr := x.Detach(); err == nil {
		err = detachErr
	}
	return err
}
