package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// Status describes an informer of this package.
type Status struct {
	// Identity is the informer's place in the store, or what it lists if it has
	// none. It is zero until it is known: see Options.Identify.
	Identity store.Identity
	// Type names the type of the objects, as logs do.
	Type string
	// Phase is what the reflector does.
	Phase reflector.Phase
	// Outcome is what came of the stored copy, OutcomeReason why. Both are empty
	// until the state is confirmed for the first time.
	Outcome       Outcome
	OutcomeReason string
	// Synced is HasSynced. Confirmed says that the state is proven to be no older
	// than the server was when the informer started. "Not found" means what it
	// says only when it is confirmed.
	Synced, Confirmed bool
	// RV is the version that reads reflect, PersistedRV the one that a restart
	// would resume from, ServerRV the server's at the last probe or list, and
	// ReadRV the one up to which the server has been read.
	RV, PersistedRV, ServerRV, ReadRV string
	// Contact is when the server last answered. If it has not yet in this run it
	// is when it last vouched for the stored copy: the age of a state that is not
	// confirmed. Zero if it never has.
	Contact time.Time
	// Staleness is how long ago Contact was, by a clock that does not jump if it
	// was in this run. If it was in an earlier one, it is no less than this run
	// has lasted, whatever has become of the clock. Never negative; 0 if there
	// was no contact.
	Staleness time.Duration
	// Objects is the number of objects.
	Objects int
	// Lists counts lists of the whole collection, SparseLists those of them that read
	// what differed only, and Watches accepted watches.
	// ListReason says why the last list was made; it is empty as long as the
	// informer runs on resumed watches alone.
	Lists, SparseLists, Watches int
	ListReason                  string
	// Err is why the last request to the server failed; nil if it did not.
	Err error
	// Persistent says whether changes are being written to a store that outlives
	// the process. If not, although there is a store, Durability.Err says why, unless
	// the informer has stopped, or nobody wanted it to be persisted.
	Persistent bool
	// Durability says how far the disk is behind.
	Durability store.Durability
	// Residency is where the objects are. It is Memory, whatever the Options say, as
	// long as the informer has no place in a store.
	Residency Residency
	// Cache describes the cache of decoded objects of disk residency.
	Cache indexer.CacheStats
	// ReadErr is why objects in disk residency cannot be read at present; nil if they
	// can. ReadErrors counts reads that have failed.
	ReadErr    error
	ReadErrors int64
	// Throttled says that the watch is not read, because more changes wait for a disk
	// that fails, or hangs, than the memory budget of disk residency allows.
	Throttled bool
	// IndexErrors counts failed calls of index functions.
	IndexErrors int64
	// Audit is what came of the audits; nil if there are none.
	Audit *AuditStatus
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
		Identity:    i.identityIfKnown(),
		Type:        i.typeName(),
		Phase:       reflector.PhaseStarting,
		Synced:      i.HasSynced(),
		RV:          i.indexer.LastStoreSyncResourceVersion(),
		Objects:     i.indexer.Len(),
		IndexErrors: i.indexer.IndexErrors(),
	}
	s.Residency, s.Cache, s.Throttled = i.indexer.Residency(), i.indexer.CacheStats(), i.throttled.Load()
	s.ReadErr, s.ReadErrors = i.indexer.ReadErr(), i.indexer.ReadErrors()
	s.Durability, s.Persistent = i.durability()
	if i.options.Audit.Period > 0 {
		audits := i.witness.status()
		s.Audit = &audits
	}
	s.PersistedRV = s.Durability.RV
	s.Confirmed = i.isConfirmed()
	if o := i.outcome.Load(); o != nil {
		s.Outcome, s.OutcomeReason = o.outcome, o.reason
	}
	i.start.Lock()
	r, startedAt := i.start.reflector, i.start.at
	s.Contact = i.start.storedContact
	if s.Durability.Err == nil {
		s.Durability.Err = i.start.persistenceErr
	}
	i.start.Unlock()
	var rs reflector.Status
	if r != nil {
		rs = r.Status()
		s.Phase, s.ServerRV, s.ReadRV, s.Err = rs.Phase, rs.ServerRV, rs.RV, rs.Err
		s.Lists, s.SparseLists, s.Watches, s.ListReason = rs.Lists, rs.SparseLists, rs.Watches, rs.ListReason
	}
	if !rs.Contact.IsZero() {
		s.Contact, startedAt = rs.Contact, rs.Contact
	}
	s.Staleness = staleness(i.clock.Now(), s.Contact, startedAt)
	return s
}

// staleness is the age of contact, but no less than the time since a moment of
// this run, which is known better: contact may have been read from a file.
func staleness(now, contact, since time.Time) time.Duration {
	if contact.IsZero() {
		return 0
	}
	return max(0, now.Sub(contact), now.Sub(since))
}

// typeName is Options.ObjectDescription, or else the kind of an object that any
// kind may have, or else the Go type.
func (i *sharedIndexInformer) typeName() string {
	if i.options.ObjectDescription != "" {
		return i.options.ObjectDescription
	}
	if !isnil.Value(i.example) && formOf(i.example) != store.FormTyped {
		if gvk := i.example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
			return gvk.GroupVersion().String() + " " + gvk.Kind
		}
	}
	return fmt.Sprintf("%T", i.example)
}

// identityIfKnown returns the zero Identity as long as there is none.
func (i *sharedIndexInformer) identityIfKnown() store.Identity {
	id := *i.identity.Load()
	if id.Resource == "" {
		return store.Identity{}
	}
	return identityOf(id, i.example)
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
