package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/examples/internal/meter"
	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
)

const (
	// childEnv holds the childSpec of a process that runs an informer.
	childEnv = "WARMRESTART_CHILD"
	// heapInterval is how often the heap is looked at.
	heapInterval = 5 * time.Millisecond
)

// childSpec is what a child is to do.
type childSpec struct {
	// Host or Kubeconfig say where the server is.
	Host       string `json:"host,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Namespace  string `json:"namespace"`
	// File is where our informer persists; empty means client-go's informer.
	File string `json:"file,omitempty"`
	// Resumed selects the start policy.
	Resumed bool `json:"resumed,omitempty"`
	// Verbosity is klog's.
	Verbosity int `json:"verbosity,omitempty"`
	// Started is when the parent started the process.
	Started time.Time `json:"started"`
}

// childReport is the only thing a child says, once it has nothing left to do:
// its handler and its cache agree, everything is proven to be current, and
// durable.
type childReport struct {
	measured
	// Outcome is outcomeResumed, or why the collection was listed.
	Outcome string `json:"outcome,omitempty"`
	// PersistedRV is the version that the next process would resume from.
	PersistedRV string `json:"persistedRV,omitempty"`
	// Known is what the handler was told, Cached what the indexer holds.
	Known  state `json:"known"`
	Cached state `json:"cached"`
	// Deleted is what the handler was told the end of, in order.
	Deleted []instance `json:"deleted"`
	// Error says why there is nothing else in the report.
	Error string `json:"error,omitempty"`
}

// asChild reports whether this process is to run an informer.
func asChild() bool { return os.Getenv(childEnv) != "" }

// childMain runs an informer, reports, and goes on until stdin ends: the parent
// kills it, or has died itself.
func childMain(stdin io.Reader, stdout io.Writer) int {
	// Ctrl-C reaches all processes of a terminal. The parent deals with it.
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	err := runChild(ctx, func(r *childReport) error { return json.NewEncoder(stdout).Encode(r) })
	if err != nil && ctx.Err() == nil {
		_ = json.NewEncoder(stdout).Encode(&childReport{Error: oneLine(err)})
		return exitFailed
	}
	return exitOK
}

func runChild(ctx context.Context, send func(*childReport) error) error {
	peakHeap := meter.WatchHeap(heapInterval)
	var spec childSpec
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &spec); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	setVerbosity(spec.Verbosity)
	config, err := spec.config()
	if err != nil {
		return err
	}
	what := kindFor(spec.Host != "")
	traffic := meter.Attach(config, what.gvr.Resource)
	sharedFactory, stop, err := spec.newFactory(ctx, config)
	if err != nil {
		return err
	}
	defer stop()
	recorder := newRecorder()
	subject := subject{informer: what.informer(sharedFactory), recorder: recorder}
	registration, err := subject.informer.AddEventHandler(recorder)
	if err != nil {
		return err
	}
	sharedFactory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	seconds := time.Since(spec.Started).Seconds()
	if !spec.Resumed {
		// What comes later has been missed: in sync means up to date, except
		// under the policy that says otherwise.
		recorder.freeze()
	}
	if err := subject.settle(ctx); err != nil {
		return err
	}
	result := &childReport{measured: measured{
		Seconds:       seconds,
		Lists:         traffic.Lists(),
		Probes:        traffic.Probes(),
		BytesReceived: traffic.BytesReceived(),
		PeakHeapBytes: peakHeap(),
	}}
	subject.fill(result)
	if err := send(result); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func setVerbosity(level int) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(level)) // cannot fail for a number
}

func (s *childSpec) config() (*rest.Config, error) {
	if s.Host != "" {
		return clientConfig(&rest.Config{Host: s.Host}), nil
	}
	config, err := loadKubeconfig(s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return clientConfig(config), nil
}

// newFactory returns client-go's factory or ours, which differ in nothing else.
// stop ends it after ctx has ended.
func (s *childSpec) newFactory(ctx context.Context, config *rest.Config) (f informers.SharedInformerFactory, stop func(), err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	if s.File == "" {
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Namespace))
		return f, f.Shutdown, nil
	}
	db, err := bolt.Open(s.File, bolt.Options{})
	if err != nil {
		return nil, nil, err
	}
	policy := informer.Confirmed
	if s.Resumed {
		policy = informer.Resumed
	}
	ours := factory.New(client, db,
		factory.WithNamespace(s.Namespace),
		factory.WithStartPolicy(policy),
		// A handful of objects would be listed, which is quicker and would
		// show nothing.
		factory.WithListBelow(-1),
	)
	return ours, func() {
		ours.Shutdown()
		if err := db.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Closing the file")
		}
	}, nil
}

// subject is the informer under observation.
type subject struct {
	informer cache.SharedIndexInformer
	recorder *recorder
}

const (
	settlePoll = 5 * time.Millisecond
	// settleLimit is far more than a healthy server and disk need.
	settleLimit = time.Minute
)

// settle waits until there is nothing left to wait for. A handler that still does
// not know what the cache holds when the time is over has missed it, which is for
// the parent to find; that the rest does not come is an error.
func (s *subject) settle(ctx context.Context) error {
	deadline := time.Now().Add(settleLimit)
	for {
		pending, err := s.pending()
		switch {
		case err != nil || pending == "":
			return err
		case time.Now().Before(deadline):
		case pending == pendingHandler:
			return nil
		default:
			return fmt.Errorf("waited %s for %s in vain", settleLimit, pending)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(settlePoll):
		}
	}
}

// What pending may return.
const (
	pendingProof   = "the proof that the stored objects are current"
	pendingDisk    = "the changes to reach the disk"
	pendingHandler = "the handler to learn what the cache holds"
)

// pending says what is still to come, or nothing. The last is all that can be
// asked of client-go.
func (s *subject) pending() (string, error) {
	status, ours := informer.StatusOf(s.informer)
	switch {
	case !ours:
	case !status.Persistent || status.Durability.Err != nil:
		return "", errors.Join(errors.New("changes are not being written to the file"), status.Durability.Err)
	case !status.Confirmed:
		return pendingProof, nil
	case status.PersistedRV != status.RV || status.Durability.Pending > 0:
		return pendingDisk, nil
	}
	if !s.recorder.knows(s.informer.GetStore().List()) {
		return pendingHandler, nil
	}
	return "", nil
}

func (s *subject) cached() state {
	cached := state{}
	for _, obj := range s.informer.GetStore().List() {
		key, v := keyAndVersion(obj)
		cached[key] = v
	}
	return cached
}

func (s *subject) fill(report *childReport) {
	s.recorder.fill(report)
	report.Cached = s.cached()
	status, ours := informer.StatusOf(s.informer)
	if !ours {
		return
	}
	report.PersistedRV = status.PersistedRV
	report.Outcome = outcomeResumed
	if status.Lists > 0 {
		report.Outcome = "listed: " + status.ListReason
	}
}
