package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
)

// StartPolicy decides when stored objects may be shown to handlers.
type StartPolicy = reflector.StartPolicy

// The start policies; see package reflector.
var (
	// Confirmed waits for the proof that the store is up to date. It is the
	// default.
	Confirmed = reflector.Confirmed
	// Resumed waits until the server has accepted the resumed watch.
	Resumed = reflector.Resumed
)

// Stale is Confirmed, but shows stored objects as they are when the server has
// been out of reach for the given time.
func Stale(after time.Duration) StartPolicy { return reflector.Stale(after) }

// Residency says where the objects of an informer are; see package indexer.
type Residency = indexer.Residency

// The residencies.
const (
	// Memory keeps all objects decoded in memory, as client-go does. It is the
	// default.
	Memory = indexer.Memory
	// Disk keeps them in the store, with a bounded cache in front. An informer that
	// gets no place in the store (its identity is in use, its objects must not be
	// written) keeps them in memory all the same, and its Status says so.
	Disk = indexer.Disk
)

// Options configure an informer. The zero value works like client-go's: in
// memory only.
type Options struct {
	// Store keeps the objects; nil works in memory only.
	Store store.Store
	// Identity is the informer's place in the store. An empty Form is taken from
	// the example object. Required with Store, unless Identify is set.
	Identity store.Identity
	// Identify returns the Identity of an informer for which it is not known
	// before it runs. It is called once, when it does, and must return soon.
	// After an error, which the log and the Status say, the informer works in
	// memory. ErrMemoryOnly says that this is wanted.
	Identify func(context.Context) (store.Identity, error)
	// Owner says whose informer it is, for the error of one that wants the same
	// Identity. By default it is the name in Identifier or, as client-go names
	// reflectors, where in the program the informer was made.
	Owner string

	// Residency says where the objects are. Disk needs a Store.
	Residency Residency
	// MemoryBudget is how many bytes of decoded objects an informer in disk residency
	// keeps in memory, and how many bytes of changes may wait for a disk that fails
	// before it stops reading the watch. 0 means indexer.DefaultMemoryBudget; the least
	// is indexer.MinMemoryBudget.
	MemoryBudget int64

	// PlaintextSecrets allows Secrets to be written, in plaintext, to a file
	// that only its owner can read. Without it an informer of Secrets works in
	// memory only, also one of their metadata: kubectl apply writes all of a Secret
	// into an annotation.
	PlaintextSecrets bool

	// Indexers are the indices to begin with.
	Indexers cache.Indexers
	// IndexVersions names versions of index functions. Without one, the stored
	// index of a function of the main module or of a function literal is built
	// anew after each deploy.
	IndexVersions map[string]string
	// TransformVersion names the version of the transform, and must change when
	// its results do. Without one, a transform of the main module or a function
	// literal makes each deploy list once.
	TransformVersion string

	// ResyncPeriod is the default resync period of handlers; 0 means none.
	ResyncPeriod time.Duration
	// ObjectDescription overrides the name of the type in logs.
	ObjectDescription string
	// Identifier names the informer, as in client-go: in logs and, as long as it is
	// reserved, in the metrics of InformerMetricsProvider.
	Identifier cache.InformerNameAndResource
	// InformerMetricsProvider makes client-go's metrics of an informer: items that
	// wait in its queue, of which a list is one; seconds that the store and the
	// queues of handlers took for a batch; version of the store. client-go keeps the
	// provider of cache.SetInformerMetricsProvider to itself: with nil here, it is
	// asked for the last of the three only.
	InformerMetricsProvider cache.InformerMetricsProvider

	// Start decides when stored objects may be shown to handlers.
	Start StartPolicy
	// ListBelow lists at once, instead of proving that the stored copy is
	// current, when it is smaller than this many bytes: for a few objects a
	// list costs less than the 1 to 2 s of the proof. It does so only after a
	// graceful stop, because a list cannot tell the delete of an object that
	// was not stored any more before a crash. 0 means DefaultListBelow, a
	// negative value never.
	ListBelow int64
	// Cluster and Schema, if set, identify the cluster and the server's schema of
	// the resource, or return "" if that cannot be known. A stored copy of
	// another cluster is dropped, one of another schema is listed again.
	Cluster, Schema func(context.Context) (string, error)
	// Metadata lists the metadata of what the ListerWatcher lists. Required with Audit.
	Metadata reflector.MetadataLister
	// Get reads one object of what the ListerWatcher lists. With it and Metadata, an
	// informer of large objects whose stored version the server has forgotten reads
	// only those that have changed, if they are few; see reflector.Sparse.
	Get func(ctx context.Context, namespace, name string) (runtime.Object, error)
	// Audit compares the informer with the server from time to time.
	Audit Audit
	// DepartedRetention is how long after its delivery a delete is kept for
	// redelivery, should the process end before having dealt with it. 0 means
	// DefaultDepartedRetention. Only the time that processes run counts; a process
	// that crashes adds nothing to it.
	DepartedRetention time.Duration

	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Logger defaults to the one in the context of Run.
	Logger *klog.Logger
}

const (
	// DefaultListBelow is the default of Options.ListBelow.
	DefaultListBelow = 128 << 10
	// DefaultDepartedRetention is the default of Options.DepartedRetention.
	DefaultDepartedRetention = 10 * time.Minute
)

func (o *Options) setDefaults() {
	if o.ListBelow == 0 {
		o.ListBelow = DefaultListBelow
	}
	if o.DepartedRetention <= 0 {
		o.DepartedRetention = DefaultDepartedRetention
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}
