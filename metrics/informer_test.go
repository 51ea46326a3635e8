package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// newYear is when the clock of a synctest bubble starts, 2000-01-01.
const newYear = 946684800

// world is an API server with three pods, and a file.
type world struct {
	t      *testing.T
	server *apitest.Server
	client kubernetes.Interface
	path   string
}

// inWorld runs a test in a synctest bubble.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.db")
	synctest.Test(t, func(t *testing.T) {
		server, err := apitest.New(apitest.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		client, err := kubernetes.NewForConfig(server.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Create(apitest.Pod("web", "a", 1), apitest.Pod("web", "b", 2), apitest.Pod("web", "c", 3)); err != nil {
			t.Fatal(err)
		}
		test(t, &world{t: t, server: server, client: client, path: path})
	})
}

// process is one run of an informer of pods over the file, and what reports it.
type process struct {
	w         *world
	db        *bolt.DB
	informer  cache.SharedIndexInformer
	collector *Collector
	cancel    context.CancelFunc
	done      chan struct{}
}

// prepare makes an informer that does not run yet.
func (w *world) prepare(change ...func(*informer.Options)) *process {
	w.t.Helper()
	return w.prepareIn(bolttest.Open(w.t, w.path, bolt.Options{}), change...)
}

// prepareIn is prepare for a file that is open.
func (w *world) prepareIn(db *bolt.DB, change ...func(*informer.Options)) *process {
	w.t.Helper()
	p := &process{w: w, db: db, done: make(chan struct{})}
	p.collector = NewCollector(p.db)
	o := informer.Options{Store: p.db, Identity: store.Identity{Version: "v1", Resource: "pods"}, ListBelow: -1}
	for _, c := range change {
		c(&o)
	}
	lw := cache.NewListWatchFromClient(w.client.CoreV1().RESTClient(), "pods", "", fields.Everything())
	p.informer = must(informer.New(lw, &corev1.Pod{}, o))
	mustAdd(w.t, p.collector, "pods", p.informer)
	return p
}

// start runs it and waits until it has synced and rests.
func (p *process) start() *process {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.informer.RunWithContext(ctx)
	}()
	<-p.informer.HasSyncedChecker().Done()
	synctest.Wait()
	return p
}

// stop ends the informer and closes the file.
func (p *process) stop() {
	p.w.t.Helper()
	p.cancel()
	<-p.done
	if err := p.db.Close(); err != nil {
		p.w.t.Error(err)
	}
}

// want compares metrics of the informer, given as lines without prefix and label,
// and its phase.
func (p *process) want(phase, text string) {
	p.w.t.Helper()
	var names []string
	want := ""
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			name, label, labelled := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if labelled {
				label = "," + label
			}
			names = append(names, "warmcache_informer_"+name)
			want += fmt.Sprintf("warmcache_informer_%s{informer=%q%s} %s\n", name, "pods", label, value)
		}
	}
	wantSamples(p.w.t, p.collector, want, names...)
	isIn := fmt.Sprintf("warmcache_informer_phase{informer=%q,phase=%q} 1", "pods", phase)
	if got := strings.Join(samples(p.w.t, p.collector, "warmcache_informer_phase"), "\n"); !strings.Contains(got, isIn) {
		p.w.t.Errorf("phase is not %s:\n%s", phase, got)
	}
}

// stored is the size of what the file of p holds.
func stored(p *process) (int64, error) {
	infos, err := p.db.Informers()
	if err != nil || len(infos) != 1 {
		return 0, fmt.Errorf("%d informers, %w", len(infos), err)
	}
	return infos[0].Totals.Bytes, nil
}

func TestCollector_Informer_ColdStartThenWarmRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare()
		p.want("Starting", `
			synced 0
			confirmed 0
			persistent 0
			objects 0
			lists_total 0
			watches_total 0
			starts_total{outcome="cold"} 0
			starts_total{outcome="reconciled"} 0
			starts_total{outcome="resumed"} 0
			stored_bytes 0
			staleness_seconds +Inf
			last_contact_timestamp_seconds 0
			last_request_failed 0`)
		p.start().want("Watching", `
			synced 1
			confirmed 1
			persistent 1
			objects 3
			lists_total 1
			watches_total 1
			starts_total{outcome="cold"} 1
			starts_total{outcome="reconciled"} 0
			starts_total{outcome="resumed"} 0
			resource_version_lag 0
			staleness_seconds 0
			last_contact_timestamp_seconds 946684800
			last_request_failed 0
			index_errors_total 0`)
		p.stop()
		p.want("Stopped", `
			synced 1
			persistent 0
			objects 3
			lists_total 1`)

		time.Sleep(time.Minute)
		p = w.prepare().start()
		defer p.stop()
		p.want("Watching", `
			synced 1
			confirmed 1
			persistent 1
			objects 3
			lists_total 0
			watches_total 1
			starts_total{outcome="cold"} 0
			starts_total{outcome="resumed"} 1
			starts_total{outcome="reconciled"} 0
			resource_version_lag 0
			last_contact_timestamp_seconds 946684860`)
		if got := must(stored(p)); got == 0 || !slices.Contains(samples(t, p.collector), fmt.Sprintf(`warmcache_informer_stored_bytes{informer="pods"} %d`, got)) {
			t.Errorf("%d bytes are stored, and reported as\n%s", got, samples(t, p.collector, "warmcache_informer_stored_bytes"))
		}
	})
}

// A server that is down leaves the age of what is served.
func TestCollector_Informer_ServerDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.prepare().start().stop()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		p := w.prepare(func(o *informer.Options) { o.Start = informer.Stale(time.Second) }).start()
		defer p.stop()
		p.want("Probing", fmt.Sprintf(`
			synced 1
			confirmed 0
			persistent 1
			objects 3
			lists_total 0
			last_request_failed 1
			starts_total{outcome="cold"} 0
			starts_total{outcome="reconciled"} 0
			starts_total{outcome="resumed"} 0
			staleness_seconds 3601
			last_contact_timestamp_seconds %d`, newYear))

		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.want("Watching", `
			synced 1
			confirmed 1
			last_request_failed 0`)
	})
}

func TestCollector_Informer_ListsAgainWhenExpired(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare().start()
		defer p.stop()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		if err := w.server.Delete(apitest.Pod("web", "a", 1)); err != nil {
			t.Fatal(err)
		}
		w.server.Compact()
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.want("Watching", `
			lists_total 2
			objects 2`)
	})
}

// The store's numbers move with those of its informers.
func TestCollector_Store_CountsCommits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare()
		names := []string{
			"warmcache_store_persistent", "warmcache_store_healthy", "warmcache_store_commits_total",
			"warmcache_store_commit_failures_total", "warmcache_store_quarantines_total", "warmcache_store_last_commit_timestamp_seconds",
		}
		wantSamples(t, p.collector, `
			warmcache_store_persistent 1
			warmcache_store_healthy 1
			warmcache_store_commits_total 0
			warmcache_store_commit_failures_total 0
			warmcache_store_quarantines_total 0
			warmcache_store_last_commit_timestamp_seconds 0`, names...)
		p.start()
		defer p.stop()
		time.Sleep(10 * time.Second)
		st := p.db.Status()
		if st.Commits == 0 || st.Committed.Unix() < newYear || st.FileBytes == 0 {
			t.Errorf("nothing was committed: %+v", st)
		}
		wantSamples(t, p.collector, fmt.Sprintf(`
			warmcache_store_commits_total %d
			warmcache_store_last_commit_timestamp_seconds %.15g
			warmcache_store_file_bytes %d
			warmcache_store_pending_bytes 0`, st.Commits, seconds(st.Committed), st.FileBytes),
			"warmcache_store_commits_total", "warmcache_store_last_commit_timestamp_seconds",
			"warmcache_store_file_bytes", "warmcache_store_pending_bytes")
	})
}

// A file that cannot be used is counted from the first scrape on.
func TestCollector_Store_CountsQuarantines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := os.WriteFile(w.path, []byte("this is no database"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := w.prepare().start()
		defer p.stop()
		wantSamples(t, p.collector, `
			warmcache_store_quarantines_total 1
			warmcache_informer_persistent{informer="pods"} 1`,
			"warmcache_store_quarantines_total", "warmcache_informer_persistent")

		// Nor does damage that is met while it is open go unnoticed.
		other, err := p.db.Collection(store.Identity{Version: "v1", Resource: "nodes", Form: store.FormTyped}, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		other.Quarantine(errors.New("a record is damaged"))
		time.Sleep(time.Minute)
		wantSamples(t, p.collector, `
			warmcache_store_quarantines_total 2
			warmcache_store_healthy 1
			warmcache_store_pending_bytes 0
			warmcache_informer_persistent{informer="pods"} 1`,
			"warmcache_store_quarantines_total", "warmcache_store_healthy", "warmcache_store_pending_bytes",
			"warmcache_informer_persistent")
	})
}

// Another process has the file: neither the store nor the informer claims to write,
// and the store does not look broken either.
func TestCollector_MemoryOnly_NothingIsPersistent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer bolttest.Open(w.t, w.path, bolt.Options{}).Close()
		db := bolttest.Open(w.t, w.path, bolt.Options{OnLocked: bolt.MemoryOnly})
		p := w.prepareIn(db)
		p.start()
		defer p.stop()
		wantSamples(t, p.collector, `
			warmcache_store_persistent 0
			warmcache_store_healthy 1
			warmcache_informer_persistent{informer="pods"} 0`,
			"warmcache_store_persistent", "warmcache_store_healthy", "warmcache_informer_persistent")
		if st, _ := informer.StatusOf(p.informer); !errors.Is(st.Durability.Err, store.ErrLocked) {
			t.Errorf("Durability.Err = %v, want store.ErrLocked", st.Durability.Err)
		}
	})
}

// What is applied waits for the flush interval, and then no longer.
func TestCollector_Informer_PendingUntilCommitted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare().start()
		defer p.stop()
		time.Sleep(time.Minute)
		p.want("Watching", `pending_bytes 0`)
		if err := w.server.Create(apitest.Pod("web", "d", 4)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st, _ := informer.StatusOf(p.informer); st.Durability.Pending == 0 {
			t.Error("nothing waits after a change")
		} else {
			p.want("Watching", fmt.Sprintf("pending_bytes %d\nobjects 4", st.Durability.Pending))
		}
		time.Sleep(bolt.DefaultFlushInterval)
		synctest.Wait()
		p.want("Watching", `pending_bytes 0`)
	})
}

func TestCollector_Informer_IndexErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare(func(o *informer.Options) {
			o.Indexers = cache.Indexers{"by-node": func(any) ([]string, error) { return nil, context.Canceled }}
		}).start()
		defer p.stop()
		st, _ := informer.StatusOf(p.informer)
		if st.IndexErrors == 0 {
			t.Error("no index errors are counted")
		}
		p.want("Watching", fmt.Sprintf("index_errors_total %d", st.IndexErrors))
	})
}
