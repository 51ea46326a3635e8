package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// childEnv holds the childConfig of a process that is to run informers instead of
// tests.
const childEnv = "WARMCACHE_E2E_CHILD"

// childConfig is what a process with informers is given.
type childConfig struct {
	Host, Token string
	// TokenFile, if set, has the token.
	TokenFile              string
	CA                     []byte
	UserAgent, ContentType string

	// Path is the file.
	Path                         string
	Resources                    []schema.GroupVersionResource
	Namespace                    string
	LabelSelector, FieldSelector string
	// Resumed and Stale choose the start policy.
	Resumed   bool
	Stale     time.Duration
	ListBelow int64
	Residency informer.Residency
	// Audit, if not 0, is the period of audits.
	Audit time.Duration
	// Subscriptions are informers with a name, a door and selectors of their own.
	Subscriptions []subscription
}

// message is a line that a child prints. Exactly one field is set.
type message struct {
	Event *event `json:",omitempty"`
	// Synced comes once all handlers have been given their initial state.
	Synced *snapshot `json:",omitempty"`
	// Snapshot answers a line on standard input.
	Snapshot *snapshot `json:",omitempty"`
	// Stopped is the last message of a graceful stop.
	Stopped *stopped `json:",omitempty"`
}

// stopped is what is left of a process after a graceful stop.
type stopped struct {
	// Leaked describes goroutines.
	Leaked string
}

// snapshot is what a child reads from its informers at one moment.
type snapshot struct {
	// SinceStart is the time since the informers were started.
	SinceStart time.Duration
	Informers  map[string]contents
}

// contents are what one informer says of itself and what its indexer holds.
type contents struct {
	Status  status
	Objects map[string]state
	// Indexed has the number of objects in the namespace index, by namespace.
	Indexed map[string]int
}

// status is informer.Status as far as it is of interest.
type status struct {
	Phase                     reflector.Phase
	Synced, Confirmed         bool
	RV, PersistedRV, ServerRV string
	ListReason                string
	Persistent                bool
	Residency                 informer.Residency
	ReadErrors                int64
	Err, DurabilityErr        string
	ReadErr                   string
}

// runChild runs informers as the environment says and returns an exit code.
func runChild(encoded string) int {
	var config childConfig
	if err := json.Unmarshal([]byte(encoded), &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	logToStderr()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := &process{config: config, informers: map[string]cache.SharedIndexInformer{}}
	p.out.Encoder = json.NewEncoder(os.Stdout)
	if err := p.run(ctx, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop()
	p.say(message{Stopped: &stopped{Leaked: text(p.leaked())}})
	return 0
}

// leaked returns an error that describes goroutines which are still there, apart
// from the one that waits for the next question, and connections that the client
// keeps for later.
func (p *process) leaked() error {
	transport, err := rest.TransportFor(p.restConfig())
	if err != nil {
		return err
	}
	for range leakChecks {
		// A connection whose last stream is just being given up is not idle yet.
		utilnet.CloseIdleConnectionsFor(transport)
		err = goleak.Find(goleak.IgnoreAnyFunction("github.com/warmcache/warmcache/e2e.(*process).answer"))
		if err == nil {
			break
		}
	}
	return err
}

// leakChecks is how often goleak, which waits for some time itself, is asked.
const leakChecks = 10

// logToStderr makes the log say what the informers do, for failed tests.
func logToStderr() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", "2"); err != nil {
		klog.Error(err)
	}
}

// process is a child seen from inside.
type process struct {
	config    childConfig
	informers map[string]cache.SharedIndexInformer
	started   time.Time
	out       struct {
		sync.Mutex
		*json.Encoder
	}
}

// run runs the informers until ctx ends or standard input is closed, which is
// also what the death of the parent does.
func (p *process) run(ctx context.Context, in io.Reader) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	//hygiene:allow bolt.Open: in a process of its own; the test checks the file
	db, err := bolt.Open(p.config.Path, bolt.Options{})
	if err != nil {
		return err
	}
	sources, err := p.makeInformers(db)
	if err != nil {
		return err
	}
	synced, err := p.addHandlers()
	if err != nil {
		return err
	}
	p.started = time.Now()
	for _, source := range sources {
		source.StartWithContext(ctx)
	}
	go p.answer(bufio.NewScanner(in), cancel)
	if cache.WaitFor(ctx, "", synced...) {
		p.say(message{Synced: p.snapshot()})
	}
	<-ctx.Done()
	for _, source := range sources {
		source.Shutdown()
	}
	return db.Close()
}

// makeInformers makes the informers and returns what starts and stops them.
func (p *process) makeInformers(db store.Store) ([]source, error) {
	client, err := kubernetes.NewForConfig(p.restConfig())
	if err != nil {
		return nil, err
	}
	auditing, err := p.auditing()
	if err != nil {
		return nil, err
	}
	f, err := factory.New(client, db, slices.Concat(p.options(), p.selecting(), auditing)...)
	if err != nil {
		return nil, err
	}
	for _, resource := range p.config.Resources {
		generic, err := f.ForResource(resource)
		if err != nil {
			return nil, err
		}
		p.informers[resource.Resource] = generic.Informer()
	}
	d := &doors{config: p.restConfig(), db: db, options: p.options(), sources: map[selection]source{}}
	d.own = informer.Options{
		ListBelow: p.config.ListBelow, Start: p.policy(),
		Residency: p.config.Residency, MemoryBudget: leastBudget(p.config.Residency),
	}
	for _, s := range p.config.Subscriptions {
		if p.informers[s.Name], err = d.open(s); err != nil {
			return nil, err
		}
	}
	return append(slices.Collect(maps.Values(d.sources)), f), nil
}

func (p *process) restConfig() *rest.Config {
	config := &rest.Config{
		Host: p.config.Host, BearerToken: p.config.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.config.CA},
		UserAgent:       p.config.UserAgent,
		ContentConfig:   rest.ContentConfig{ContentType: p.config.ContentType},
	}
	if p.config.TokenFile != "" {
		// The file is read again after a 401, and not only once in a minute.
		config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(p.config.TokenFile)))
	}
	return config
}

func (p *process) policy() informer.StartPolicy {
	policy := informer.Confirmed
	switch {
	case p.config.Resumed:
		policy = informer.Resumed
	case p.config.Stale > 0:
		policy = informer.Stale(p.config.Stale)
	}
	return policy
}

func (p *process) options() []factory.Option {
	return []factory.Option{
		factory.WithListBelow(p.config.ListBelow), factory.WithStartPolicy(p.policy()),
		factory.WithResidency(p.config.Residency, leastBudget(p.config.Residency)),
	}
}

// auditing has the options that have the informers of Resources audited.
func (p *process) auditing() ([]factory.Option, error) {
	if p.config.Audit == 0 {
		return nil, nil
	}
	client, err := metadata.NewForConfig(p.restConfig())
	if err != nil {
		return nil, err
	}
	return []factory.Option{
		factory.WithMetadataClient(client), factory.WithAudit(informer.Audit{Period: p.config.Audit}),
	}, nil
}

// selecting has the options that say what the informers of Resources select.
func (p *process) selecting() []factory.Option {
	return []factory.Option{
		factory.WithNamespace(p.config.Namespace),
		factory.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = p.config.LabelSelector, p.config.FieldSelector
		}),
	}
}

// addHandlers returns what tells that the handlers have been given the initial
// state.
func (p *process) addHandlers() (synced []cache.DoneChecker, err error) {
	for name, inf := range p.informers {
		handler := reportTo(func(e event) { p.say(message{Event: &e}) }, name)
		registration, err := inf.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSyncedChecker())
	}
	return synced, nil
}

// answer answers each line with a snapshot.
func (p *process) answer(lines *bufio.Scanner, stop func()) {
	defer stop()
	for lines.Scan() {
		p.say(message{Snapshot: p.snapshot()})
	}
}

func (p *process) say(m message) {
	p.out.Lock()
	defer p.out.Unlock()
	if err := p.out.Encode(m); err != nil {
		klog.ErrorS(err, "Message was not written")
	}
}

func (p *process) snapshot() *snapshot {
	s := &snapshot{SinceStart: time.Since(p.started), Informers: map[string]contents{}}
	for resource, inf := range p.informers {
		s.Informers[resource] = contentsOf(inf)
	}
	return s
}

func contentsOf(inf cache.SharedIndexInformer) contents {
	objects, err := statesOf(inf.GetStore().List())
	if err != nil {
		klog.ErrorS(err, "Objects were not described")
	}
	c := contents{Status: statusOf(inf), Objects: objects, Indexed: map[string]int{}}
	indexer := inf.GetIndexer()
	for _, namespace := range indexer.ListIndexFuncValues(cache.NamespaceIndex) {
		keys, err := indexer.IndexKeys(cache.NamespaceIndex, namespace)
		if err != nil {
			klog.ErrorS(err, "Index was not read")
		}
		c.Indexed[namespace] = len(keys)
	}
	return c
}

func statusOf(inf cache.SharedIndexInformer) status {
	s, ok := informer.StatusOf(inf)
	if !ok {
		return status{Err: fmt.Sprintf("%T has no status", inf)}
	}
	return status{
		Phase: s.Phase, Synced: s.Synced, Confirmed: s.Confirmed,
		RV: s.RV, PersistedRV: s.PersistedRV, ServerRV: s.ServerRV,
		ListReason: s.ListReason, Persistent: s.Persistent, Residency: s.Residency, ReadErrors: s.ReadErrors,
		Err: text(s.Err), DurabilityErr: text(s.Durability.Err), ReadErr: text(s.ReadErr),
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
