package restmapper

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// ErrUnavailable means that the server does not answer and nothing is stored, so
// that nothing can be said about any kind. Try again when the server can be
// reached.
var ErrUnavailable = errors.New("the API server cannot be asked for its resources, and none are stored")

const (
	// askTimeout is how long an answer of the server is waited for.
	askTimeout = 5 * time.Second
	// askInterval is the least time between two questions to a server that has not
	// answered, of which each may cost a caller askTimeout.
	askInterval = 10 * time.Second
	// learnInterval is the least time between two answers: a kind that is unknown
	// may just have been installed.
	learnInterval = time.Second
)

// Mapper is a meta.RESTMapper that asks a server, and remembers its answer in a
// store. It is safe for concurrent use. A call may wait for the server, for five
// seconds at most.
type Mapper struct {
	server  discovery.DiscoveryInterfaceWithContext
	storage storage
	clock   clock.PassiveClock

	// mu is held while the server is asked, so that many callers ask once.
	mu struct {
		sync.Mutex
		// known is the last answer, of the server if fresh is set; nil if there is
		// none.
		known meta.RESTMapper
		fresh bool
		// asked is when the last question had its end, err why it had no answer.
		asked time.Time
		err   error
	}
}

var _ meta.ResettableRESTMapper = (*Mapper)(nil)

// Provider returns a function for the field MapperProvider of controller-runtime's
// manager and cluster options. The mappers it makes use db, which must stay open
// as long as the manager runs; a nil db remembers nothing.
func Provider(db store.Store) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		d, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("making a discovery client: %w", err)
		}
		return New(d, db)
	}
}

// New returns a mapper that asks with server and remembers in db, if that is not
// nil. It makes no request. The error says which of them is a nil pointer.
func New(server discovery.DiscoveryInterface, db store.Store) (*Mapper, error) {
	if isnil.Value(server) {
		return nil, errors.New("the discovery client is nil")
	}
	if db != nil && isnil.Value(db) {
		return nil, fmt.Errorf("the store is a nil %T; give nil itself to remember nothing", db)
	}
	return &Mapper{
		server:  discovery.ToDiscoveryInterfaceWithContext(server),
		storage: storage{db},
		clock:   clock.RealClock{},
	}, nil
}

// Reset makes the next call ask the server.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fresh, m.mu.asked = false, time.Time{}
}

// KindFor implements meta.RESTMapper.
func (m *Mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return lookup(m, func(known meta.RESTMapper) (schema.GroupVersionKind, error) { return known.KindFor(resource) })
}

// KindsFor implements meta.RESTMapper.
func (m *Mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return lookup(m, func(known meta.RESTMapper) ([]schema.GroupVersionKind, error) { return known.KindsFor(resource) })
}

// ResourceFor implements meta.RESTMapper.
func (m *Mapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return lookup(m, func(known meta.RESTMapper) (schema.GroupVersionResource, error) { return known.ResourceFor(input) })
}

// ResourcesFor implements meta.RESTMapper.
func (m *Mapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return lookup(m, func(known meta.RESTMapper) ([]schema.GroupVersionResource, error) { return known.ResourcesFor(input) })
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return lookup(m, func(known meta.RESTMapper) (*meta.RESTMapping, error) { return known.RESTMapping(kind, versions...) })
}

// RESTMappings implements meta.RESTMapper.
func (m *Mapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return lookup(m, func(known meta.RESTMapper) ([]*meta.RESTMapping, error) { return known.RESTMappings(kind, versions...) })
}

// ResourceSingularizer implements meta.RESTMapper.
func (m *Mapper) ResourceSingularizer(resource string) (string, error) {
	return lookup(m, func(known meta.RESTMapper) (string, error) { return known.ResourceSingularizer(resource) })
}

// lookup answers from what is known, and asks the server for what is not: a kind
// may have been installed since.
func lookup[T any](m *Mapper, ask func(meta.RESTMapper) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.fresh {
		if err := m.refreshLocked(); m.mu.known == nil {
			var none T
			return none, err
		}
	}
	answer, err := ask(m.mu.known)
	if !meta.IsNoMatchError(err) || m.refreshLocked() != nil {
		return answer, err
	}
	return ask(m.mu.known)
}

// refreshLocked asks the server, if it was not asked just now. If it does not
// answer and nothing is known, it loads what is stored.
func (m *Mapper) refreshLocked() error {
	interval := askInterval
	if m.mu.fresh {
		interval = learnInterval
	}
	if !m.mu.asked.IsZero() && m.clock.Since(m.mu.asked) < interval {
		return m.mu.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, m.server)
	m.mu.asked = m.clock.Now()
	if err == nil && len(groups) > 0 {
		m.learnLocked(groups)
		return nil
	}
	m.mu.fresh, m.mu.err = false, err
	if m.mu.known != nil {
		return err
	}
	stored, loadErr := m.storage.load()
	if loadErr != nil || len(stored) == 0 {
		m.mu.err = errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), loadErr)
		return m.mu.err
	}
	klog.Background().Info("The API server does not tell its resources; going on with those of an earlier run", "err", err)
	m.mu.known = restmapper.NewDiscoveryRESTMapper(stored)
	return err
}

// learnLocked takes over and stores an answer of the server.
func (m *Mapper) learnLocked(groups []*restmapper.APIGroupResources) {
	stored, err := m.storage.load()
	if err == nil {
		groups = completed(groups, stored)
		err = m.storage.save(groups, stored)
	}
	if err != nil {
		klog.Background().Error(err, "The resources of the API server are not stored; a start without a link to it will not know them")
	}
	m.mu.known, m.mu.fresh, m.mu.err = restmapper.NewDiscoveryRESTMapper(groups), true, nil
}

// completed adds, to groups of which the server could not tell some versions
// because the API service behind them is down, what is stored of these.
func completed(groups, stored []*restmapper.APIGroupResources) []*restmapper.APIGroupResources {
	before := map[string]*restmapper.APIGroupResources{}
	for _, group := range stored {
		before[group.Group.Name] = group
	}
	for _, group := range groups {
		for _, version := range group.Group.Versions {
			if _, told := group.VersionedResources[version.Version]; told || before[group.Group.Name] == nil {
				continue
			}
			if resources, ok := before[group.Group.Name].VersionedResources[version.Version]; ok {
				group.VersionedResources[version.Version] = resources
			}
		}
	}
	return groups
}
