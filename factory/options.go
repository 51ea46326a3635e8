package factory

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// Option changes one setting of a factory. A later option overrides an earlier
// one, except where it says that it adds.
//
// Constructors share these options. One that cannot do what an option says returns
// an error that names it: an option is never ignored. A nil Option, clock, tweak,
// informer name or provider leaves the default.
type Option func(*config)

// option makes an Option that says that it was given.
func option(name string, set func(*config)) Option {
	return func(c *config) {
		c.given = append(c.given, name)
		set(c)
	}
}

// config is what the options set. The zero value is the default of each.
type config struct {
	// given has the names of the options, in their order.
	given []string

	namespace         string
	tweak             internalinterfaces.TweakListOptionsFunc
	resync            time.Duration
	customResync      map[reflect.Type]time.Duration
	transform         cache.TransformFunc
	transformVersion  string
	informerName      *cache.InformerName
	start             informer.StartPolicy
	listBelow         int64
	departedRetention time.Duration
	indexVersions     map[string]string
	// memoryOnly and memoryOnlyResources are types that are not persisted.
	memoryOnly          map[reflect.Type]bool
	memoryOnlyResources map[schema.GroupVersionResource]bool
	plaintextSecrets    bool
	// residency is that of all types for which residencyRules has none; of these
	// the last counts.
	residency      residency
	residencyRules []residencyRule
	// withoutTypes is an option that names none.
	withoutTypes    string
	metricsProvider cache.InformerMetricsProvider
	observers       []Observer
	discovery       discovery.OpenAPIV3SchemaInterface
	metadata        metadata.Interface
	audit           informer.Audit
	scheme          runtime.ObjectTyper
	clock           clock.WithTicker
	logger          *klog.Logger
}

func newConfig(opts []Option) config {
	c := config{
		customResync:  map[reflect.Type]time.Duration{},
		indexVersions: map[string]string{},
		memoryOnly:    map[reflect.Type]bool{},

		memoryOnlyResources: map[schema.GroupVersionResource]bool{},
	}
	for _, opt := range opts {
		if opt != nil { // which sets nothing
			opt(&c)
		}
	}
	return c
}

// has says whether an option was given.
func (c *config) has(option string) bool { return slices.Contains(c.given, option) }

// refuse reports the first option that a constructor cannot honour, as an error
// that wraps ErrInvalidOptions and says why.
func (c *config) refuse(constructor string, reasons map[string]string) error {
	for _, name := range c.given {
		if reason, refused := reasons[name]; refused {
			return invalid("%s has no use for %s: %s", constructor, name, reason)
		}
	}
	return nil
}

// resyncOf returns the resync period of a type.
func (c *config) resyncOf(t reflect.Type) time.Duration {
	if period, ok := c.customResync[t]; ok {
		return period
	}
	return c.resync
}

// inMemory says whether the user wants t to be kept in memory only.
func (c *config) inMemory(t target) bool {
	return c.memoryOnly[reflect.TypeOf(t.example)] || c.memoryOnlyResources[t.gvr]
}

// validate reports the first option that cannot be meant, as an error that wraps
// ErrInvalidOptions.
func (c *config) validate(db store.Store) error {
	switch problems := validation.IsDNS1123Label(c.namespace); {
	case db != nil && isnil.Value(db):
		return invalid("the store is a nil %T; give nil itself to work in memory", db)
	case c.namespace != "" && len(problems) > 0:
		return invalid("WithNamespace: %q: %s", c.namespace, problems[0])
	case c.start.Validate() != nil:
		return invalid("WithStartPolicy: %w", c.start.Validate())
	case c.memoryOnlyResources[schema.GroupVersionResource{}]:
		return invalid("WithoutPersistenceOf: a resource is empty")
	case c.hasEmptyIndexName():
		return invalid("WithIndexVersions: the name of an index is empty")
	case c.departedRetention < 0:
		return invalid("WithDepartedRetention: %s is negative", c.departedRetention)
	case c.resync < 0:
		return invalid("WithResync: %s is negative", c.resync)
	case c.has("WithTransform") && c.has("WithTransformVersion"):
		return invalid("WithTransformVersion: WithTransform has a version of its own")
	case c.has("WithTransform") && c.transform == nil && c.transformVersion != "":
		return invalid("WithTransform: version %q without a transform", c.transformVersion)
	case slices.ContainsFunc(c.observers, func(o Observer) bool { return isnil.Value(o) }):
		return invalid("WithObserver: the observer is nil")
	case c.has("WithDiscovery") && isnil.Value(c.discovery):
		return invalid("WithDiscovery: the client is nil")
	case c.has("WithScheme") && isnil.Value(c.scheme):
		return invalid("WithScheme: the scheme is nil")
	case c.clock != nil && isnil.Value(c.clock):
		return invalid("WithClock: the clock is a nil %T", c.clock)
	case c.memoryOnly[nil]:
		return invalid("WithoutPersistence: an object is nil")
	}
	for t, period := range c.customResync {
		if t == nil || period < 0 {
			return invalid("WithCustomResyncConfig: type %v, period %s", t, period)
		}
	}
	return errors.Join(c.validateAudit(), c.validateResidency(db))
}

// metricsNeedName reports metrics that nobody would see.
func (c *config) metricsNeedName() error {
	if c.metricsProvider != nil && c.informerName == nil {
		return invalid("WithInformerMetricsProvider needs WithInformerName: client-go makes metrics of informers with a name only")
	}
	return nil
}

// validateTypes reports types that options name and that nothing in the table
// lists.
func (c *config) validateTypes(table resourceTable) error {
	var missing []error
	for t := range c.memoryOnly {
		missing = append(missing, table.requireType("WithoutPersistence", t))
	}
	for gvr := range c.memoryOnlyResources {
		missing = append(missing, table.requireResource("WithoutPersistenceOf", gvr))
	}
	for _, rule := range c.residencyRules {
		if rule.object != nil {
			missing = append(missing, table.requireType(rule.option, rule.object))
		} else {
			missing = append(missing, table.requireResource(rule.option, rule.resource))
		}
	}
	return errors.Join(errors.Join(missing...), c.validateUnpersistedIn(table))
}

func (c *config) hasEmptyIndexName() bool {
	_, has := c.indexVersions[""]
	return has
}

// clockOrReal returns the clock of the factory itself.
func (c *config) clockOrReal() clock.Clock {
	if c.clock != nil {
		return c.clock
	}
	return clock.RealClock{}
}

// log returns the logger for what the factory itself has to say.
func (c *config) log() klog.Logger {
	if c.logger != nil {
		return *c.logger
	}
	return klog.Background()
}

// WithNamespace limits informers of namespaced types to one namespace. Types that
// are not namespaced are listed whole, where a factory knows them: see NewDynamic.
// The default is all namespaces.
func WithNamespace(namespace string) Option {
	return option("WithNamespace", func(c *config) { c.namespace = namespace })
}

// WithTweakListOptions applies tweak to the options of every list and watch, last,
// as client-go's option of this name does.
//
// New also calls it once with empty options: the label and field selector it
// sets there become part of the identity of every collection, so that informers
// with different selectors never share data. It must therefore be deterministic,
// set the same selectors whatever else the options hold, and be safe for
// concurrent use.
//
// It may also set Limit, TimeoutSeconds and AllowWatchBookmarks. They do not
// change what is selected, but a resumed watch wants to choose them itself: with
// other values, proving that it has caught up takes longer or ends in a list.
// With a tweak that sets anything else, such as ResourceVersion or ShardSelector,
// no informer is persisted, which the log and their status say; requests are made
// with what it set. A selector that does not parse is an error of the constructor.
func WithTweakListOptions(tweak internalinterfaces.TweakListOptionsFunc) Option {
	return option("WithTweakListOptions", func(c *config) { c.tweak = tweak })
}

// WithResync sets how often handlers get everything again from the cache. Zero,
// the default, means never. It never lists.
func WithResync(period time.Duration) Option {
	return option("WithResync", func(c *config) { c.resync = period })
}

// WithCustomResyncConfig sets the resync period of the types of the given
// objects. It adds to what earlier options of this name set.
func WithCustomResyncConfig(periods map[metav1.Object]time.Duration) Option {
	return option("WithCustomResyncConfig", func(c *config) {
		for obj, period := range periods {
			c.customResync[reflect.TypeOf(obj)] = period
		}
	})
}

// WithTransform makes every informer store and deliver what transform returns.
//
// Stored objects are transformed objects, and are used at the next start only if
// they were written by the same transform. version says whether it is the same:
// change it with the function. With an empty version the function is recognised
// by its name and the version of its module; for a function in the main module
// this means a list after every build.
func WithTransform(transform cache.TransformFunc, version string) Option {
	return option("WithTransform", func(c *config) { c.transform, c.transformVersion = transform, version })
}

// WithTransformVersion is the version of a transform that somebody else sets: the
// factory that Adopt registers informers with, or code that calls SetTransform of
// an informer before it starts. It says what the version of WithTransform says,
// which it cannot be combined with.
func WithTransformVersion(version string) Option {
	return option("WithTransformVersion", func(c *config) { c.transformVersion = version })
}

// WithDiscovery says where informers learn the server's schemas, of which they
// store a fingerprint: its index of OpenAPI v3 documents. A stored copy of another
// schema is listed again, because a new default changes objects without changing
// their versions. A client that caches documents must not be used.
//
// If the client has a RESTClient, as client-go's discovery client has, it also tells
// one cluster from another where the namespace kube-system may not be read: by the
// public keys of the issuer of service account tokens.
//
// Clientsets have such a client, which is the default. Clients for dynamic objects
// and metadata have none, and do without: a server whose schema of a custom
// resource changes refuses to resume watches of it anyway.
func WithDiscovery(client discovery.OpenAPIV3SchemaInterface) Option {
	return option("WithDiscovery", func(c *config) { c.discovery = client })
}

// WithScheme says which group, version and kind the Go types of a clientset have,
// for Adopt. It is the Scheme of the package scheme next to a generated clientset.
func WithScheme(scheme runtime.ObjectTyper) Option {
	return option("WithScheme", func(c *config) { c.scheme = scheme })
}

// WithInformerName names the informers in client-go's metrics. The name comes
// from cache.NewInformerName; Shutdown releases it.
func WithInformerName(name *cache.InformerName) Option {
	return option("WithInformerName", func(c *config) { c.informerName = name })
}

// WithStartPolicy says when a warm informer counts as synced. The default is
// informer.Confirmed.
func WithStartPolicy(policy informer.StartPolicy) Option {
	return option("WithStartPolicy", func(c *config) { c.start = policy })
}

// WithListBelow makes an informer list at start, rather than resume, when its
// stored objects take less than this many bytes: listing few objects is quicker
// than proving that nothing was missed. See informer.Options.ListBelow.
func WithListBelow(bytes int64) Option {
	return option("WithListBelow", func(c *config) { c.listBelow = bytes })
}

// WithDepartedRetention sets for how long after its delivery a delete is kept, to be
// delivered again if the process ends before it has been dealt with: as long as it
// may wait in a workqueue, also for another attempt. Only the time that processes run
// counts; one that crashes adds nothing to it. 0, the default, means informer.DefaultDepartedRetention.
func WithDepartedRetention(d time.Duration) Option {
	return option("WithDepartedRetention", func(c *config) { c.departedRetention = d })
}

// WithIndexVersions gives versions to index functions, by the name of the index,
// for all informers of the factory. A stored index is used at the next start only
// if its version is the same: change it with the function. Functions without a
// version are recognised as in WithTransform. It adds to what earlier options of
// this name set.
func WithIndexVersions(versions map[string]string) Option {
	return option("WithIndexVersions", func(c *config) { maps.Copy(c.indexVersions, versions) })
}

// WithoutPersistence keeps informers of the types of the given objects in memory.
// What an earlier run stored of them stays in the file, unused. It adds to what
// earlier options of this name set.
func WithoutPersistence(objs ...runtime.Object) Option {
	return option("WithoutPersistence", func(c *config) {
		for _, obj := range objs {
			c.memoryOnly[reflect.TypeOf(obj)] = true
		}
	})
}

// WithoutPersistenceOf is WithoutPersistence for resources, by which factories of
// dynamic and metadata clients name what they hold.
func WithoutPersistenceOf(resources ...schema.GroupVersionResource) Option {
	return option("WithoutPersistenceOf", func(c *config) {
		for _, gvr := range resources {
			c.memoryOnlyResources[gvr] = true
		}
	})
}

// WithPlaintextSecrets persists Secrets like any other type, readable by whoever
// can read the file. Without it they are kept in memory only, which the line of their
// start in the log and their status say. WithoutPersistence and WithoutPersistenceOf
// keep them in memory all the same. Their metadata is treated alike: kubectl apply writes
// all of a Secret into an annotation.
func WithPlaintextSecrets() Option {
	return option("WithPlaintextSecrets", func(c *config) { c.plaintextSecrets = true })
}

// WithClock sets the clock of all informers, for tests. The default is the
// system's.
func WithClock(clock clock.WithTicker) Option {
	return option("WithClock", func(c *config) { c.clock = clock })
}

// WithLogger sets the logger of the factory and its informers. By default the
// factory logs to klog, and informers to the logger in the context they are
// started with.
func WithLogger(logger klog.Logger) Option {
	return option("WithLogger", func(c *config) { c.logger = &logger })
}
