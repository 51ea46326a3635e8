package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/meter"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// measuredEnv holds the measuredConfig of a process whose memory is measured.
const measuredEnv = "WARMCACHE_E2E_MEASURED"

// measuredConfig is what such a process is given.
type measuredConfig struct {
	Host, Token string
	CA          []byte
	Namespace   string
	// Path is the file of an informer in disk residency. Without one it is
	// client-go's.
	Path string
	// Get makes the process do nothing but to read the pod of this key, once.
	Get string
}

// measurement is what the process says: of its first list and, after each line with
// the name of a pod, of what it took until it knew that pod.
type measurement struct {
	// Peak is the highest sample of the heap, in bytes, with its garbage; Heap and
	// RssAnon are those of afterwards, without.
	Peak, Heap, RssAnon int64
	// Objects is how many there are, and Lists how often they were listed in all,
	// which client-go does not tell.
	Objects, Lists int
	// FirstGet is how long it took from opening the file to the object.
	FirstGet time.Duration
}

// runMeasured runs an informer as the environment says and returns an exit code.
func runMeasured(encoded string) int {
	logToStderr()
	m := &measured{known: map[string]chan struct{}{}, out: json.NewEncoder(os.Stdout)}
	err := json.Unmarshal([]byte(encoded), &m.config)
	switch {
	case err != nil:
	case m.config.Get != "":
		err = m.get(context.Background())
	default:
		err = m.run(context.Background(), os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// measured is such a process, seen from inside.
type measured struct {
	config   measuredConfig
	out      *json.Encoder
	informer cache.SharedIndexInformer
	close    func() error

	mu sync.Mutex
	// known are closed once the handler has been told of the pod of a name. They are
	// those of pods that have been asked for.
	known map[string]chan struct{}
}

// markerPrefix is that of the names of pods that may be asked for.
const markerPrefix = "marker-"

// run measures until standard input is closed.
func (m *measured) run(ctx context.Context, in io.Reader) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	peak := meter.WatchHeap(sampling)
	defer func() { peak() }()
	if err := m.open(); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
		err = errors.Join(err, m.close())
	}()
	registration, err := m.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: m.added})
	if err != nil {
		return err
	}
	running.Go(func() { m.informer.RunWithContext(ctx) })
	<-registration.HasSyncedChecker().Done()
	for lines := bufio.NewScanner(in); ; {
		if err := m.settle(); err != nil {
			return err
		}
		if err := m.report(measurement{Peak: peak()}); err != nil {
			return err
		}
		peak = meter.WatchHeap(sampling)
		if !lines.Scan() {
			return lines.Err()
		}
		<-m.marker(lines.Text())
	}
}

// dirtyBytes is less than by default, because up to four times as much waits while a
// list comes faster than the disk writes it: most of what is in memory then.
const dirtyBytes = 1 << 20

// open makes the informer.
func (m *measured) open() error {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: m.config.Host, BearerToken: m.config.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: m.config.CA},
		ContentConfig:   rest.ContentConfig{ContentType: apiruntime.ContentTypeProtobuf},
	})
	if err != nil {
		return err
	}
	pods := cache.ToListWatcherWithWatchListSemantics(
		cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", m.config.Namespace, fields.Everything()), client)
	indexers := cache.Indexers{"node": byNode, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if m.config.Path == "" {
		m.close = func() error { return nil }
		m.informer = cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, indexers)
		return nil
	}
	//hygiene:allow bolt.Open: in a process of its own; the test checks the file
	db, err := bolt.Open(m.config.Path, bolt.Options{MaxDirtyBytes: dirtyBytes})
	if err != nil {
		return err
	}
	m.close = db.Close
	m.informer, err = informer.New(pods, &corev1.Pod{}, informer.Options{
		Store:     db,
		Identity:  store.Identity{Version: "v1", Resource: "pods", Namespace: m.config.Namespace},
		Residency: informer.Disk, MemoryBudget: leastBudget(informer.Disk),
		Indexers: indexers, IndexVersions: map[string]string{"node": "1"}, ListBelow: -1,
	})
	return err
}

func byNode(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is no pod", obj)
	}
	return []string{pod.Spec.NodeName}, nil
}

func (m *measured) added(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok && strings.HasPrefix(pod.Name, markerPrefix) {
		close(m.marker(pod.Name)) // A pod is added once.
	}
}

func (m *measured) marker(name string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[name] == nil {
		m.known[name] = make(chan struct{})
	}
	return m.known[name]
}

// sampling is how often the heap is looked at.
const sampling = 5 * time.Millisecond

// poll is how often a condition is looked at that has no channel.
const poll = 100 * time.Microsecond

// settle waits until all is in the file.
func (m *measured) settle() error {
	for ticker := time.NewTicker(poll); ; <-ticker.C {
		s, ours := informer.StatusOf(m.informer)
		switch {
		case !ours:
			return nil
		case !s.Persistent || s.Residency != informer.Disk:
			return fmt.Errorf("not on disk: %+v", s)
		case s.Confirmed && s.PersistedRV == s.RV && s.Durability.Pending == 0:
			return nil
		}
	}
}

// report adds what the process has now.
func (m *measured) report(r measurement) (err error) {
	runtime.GC()
	runtime.GC() // What pools held goes with the second.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	r.Heap = int64(stats.HeapAlloc)
	if r.RssAnon, err = rssAnon(); err != nil {
		return err
	}
	s, ours := informer.StatusOf(m.informer)
	if r.Objects, r.Lists = s.Objects, s.Lists; !ours {
		r.Objects = len(m.informer.GetStore().ListKeys())
	}
	return m.out.Encode(r)
}

// rssAnon returns the physical memory that nobody else has, in bytes.
func rssAnon() (int64, error) {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(content), "RssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, err := strconv.ParseInt(number, 10, 64)
	return kilobytes << 10, err
}

// get reads one object, without a server.
func (m *measured) get(ctx context.Context) error {
	started := time.Now()
	if err := m.open(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { m.informer.RunWithContext(ctx) })
	var err error
	for ticker, found := time.NewTicker(poll), false; !found && err == nil; <-ticker.C {
		_, found, err = m.informer.GetIndexer().GetByKey(m.config.Get)
	}
	err = errors.Join(err, m.out.Encode(measurement{FirstGet: time.Since(started)}))
	stop()
	running.Wait()
	return errors.Join(err, m.close())
}
