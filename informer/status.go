package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// Status describes an informer of this package.
type Status struct {
	// Phase is what the reflector does.
	Phase reflector.Phase
	// Synced is HasSynced. Confirmed says that the state is proven to be no older
	// than the server was when the informer started. "Not found" means what it
	// says only when it is confirmed.
	Synced, Confirmed bool
	// RV is the version that reads reflect, PersistedRV the one that a restart
	// would resume from, ServerRV the server's at the last probe or list.
	RV, PersistedRV, ServerRV string
	// Contact is when the server last answered. If it has not yet in this run it
	// is when it last vouched for the stored copy: the age of a state that is not
	// confirmed. Zero if it never has.
	Contact time.Time
	// Objects is the number of objects.
	Objects int
	// Lists counts lists of the whole collection and Watches accepted watches.
	// ListReason says why the last list was made; it is empty as long as the
	// informer runs on resumed watches alone.
	Lists, Watches int
	ListReason     string
	// Err is why the last request to the server failed; nil if it did not.
	Err error
	// Persistent says whether changes are being written to a store that outlives
	// the process. If not, although there is a store, Durability.Err says why.
	Persistent bool
	// Durability says how far the disk is behind.
	Durability store.Durability
	// IndexErrors counts failed calls of index functions.
	IndexErrors int64
}

// StatusOf returns the status of an informer made by this package, also through
// wrappers such as client-go's typed informers. ok is false for any other.
func StatusOf(informer cache.SharedInformer) (status Status, ok bool) {
	c, ok := informer.GetController().(controller)
	if !ok {
		return Status{}, false
	}
	return c.informer.status(), true
}

func (i *sharedIndexInformer) status() Status {
	s := Status{
		Phase:       reflector.PhaseStarting,
		Synced:      i.HasSynced(),
		RV:          i.indexer.LastStoreSyncResourceVersion(),
		Objects:     i.indexer.Len(),
		IndexErrors: i.indexer.IndexErrors(),
	}
	s.Durability, s.Persistent = i.durability()
	s.PersistedRV = s.Durability.RV
	s.Confirmed = i.confirmed.Load()
	i.lifecycle.Lock()
	r := i.lifecycle.reflector
	s.Contact = i.lifecycle.storedContact
	if s.Durability.Err == nil {
		s.Durability.Err = i.lifecycle.persistenceErr
	}
	i.lifecycle.Unlock()
	if r == nil {
		return s
	}
	rs := r.Status()
	if !rs.Contact.IsZero() {
		s.Contact = rs.Contact
	}
	s.Phase, s.ServerRV, s.Err = rs.Phase, rs.ServerRV, rs.Err
	s.Lists, s.Watches, s.ListReason = rs.Lists, rs.Watches, rs.ListReason
	return s
}

// durability is the indexer's, unless the store itself keeps nothing.
func (i *sharedIndexInformer) durability() (d store.Durability, persistent bool) {
	d, persistent = i.indexer.Durability()
	if i.options.Store == nil {
		return d, false
	}
	s := i.options.Store.Status()
	if !s.Persistent && d.Err == nil {
		d.Err = s.Err
	}
	return d, persistent && s.Persistent
}

// controller is what GetController returns: as in client-go it does nothing but
// answer questions.
type controller struct{ informer *sharedIndexInformer }

// GetController implements cache.SharedInformer.
func (i *sharedIndexInformer) GetController() cache.Controller { return controller{i} }

func (controller) Run(<-chan struct{})               {}
func (controller) RunWithContext(context.Context)    {}
func (c controller) HasSynced() bool                 { return c.informer.HasSynced() }
func (c controller) LastSyncResourceVersion() string { return c.informer.LastSyncResourceVersion() }
func (c controller) HasSyncedChecker() cache.DoneChecker {
	return c.informer.HasSyncedChecker()
}

// String names the informer.
func (c controller) String() string { return fmt.Sprintf("controller of %s", c.informer.name()) }
