package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/codec"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/reflector"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

// metadataOf lists the metadata of what the informers of a world list.
type metadataOf struct {
	lister   reflector.MetadataLister
	selector string
}

func (m metadataOf) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	o.LabelSelector = m.selector
	return m.lister.List(ctx, o)
}

// audited makes informers that are audited about once a minute.
func (w *world) audited(o *informer.Options) {
	config := w.server.RESTConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	o.Metadata = metadataOf{must(metadata.NewForConfig(config)).Resource(configMaps), w.selector}
	o.Audit = informer.Audit{Period: time.Minute}
}

// audit waits for the end of the next audit.
func (p *process) audit() audit.Report {
	p.w.t.Helper()
	before := p.status().Audit
	for range 3600 {
		time.Sleep(time.Second)
		synctest.Wait()
		if now := p.status().Audit; !now.Last.Finished.Equal(before.Last.Finished) {
			return now.Last
		}
	}
	p.w.t.Fatal("no audit came to its end within an hour")
	return audit.Report{}
}

// wantReport compares what matters of a report.
func (w *world) wantReport(got, want audit.Report) {
	w.t.Helper()
	if got.Missing != want.Missing || got.Extra != want.Extra || got.Different != want.Different || got.Repaired != want.Repaired ||
		!errors.Is(got.Err, want.Err) || want.Examples != nil && !slices.Equal(got.Examples, want.Examples) {
		w.t.Errorf("the audit reports %+v\nwant %+v", got, want)
	}
}

// storing are the informers that a restart can resume.
var storing = map[string]maker{"persistent": persistent, onDiskName: onDisk}

// corruption is a way in which a cache can differ from the server.
type corruption struct {
	name string
	// corrupt changes the cache behind the informer's back. It has a, b and c.
	corrupt func(t *testing.T, x cache.Indexer)
	report  audit.Report
	// events are what handlers hear of the repair.
	events []string
}

// held is a copy of a stored object, changed.
func held(t *testing.T, x cache.Indexer, name string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	t.Helper()
	obj, exists, err := x.GetByKey("default/" + name)
	if !exists || err != nil {
		t.Fatalf("%s: %v, %v", name, exists, err)
	}
	cm := obj.(*corev1.ConfigMap).DeepCopy()
	change(cm)
	return cm
}

var corruptions = []corruption{
	{
		"missing",
		func(t *testing.T, x cache.Indexer) { check(t, x.Delete(configMap("b", ""))) },
		audit.Report{Missing: 1, Examples: []string{"default/b"}},
		[]string{"add b"},
	},
	{
		"extra",
		func(t *testing.T, x cache.Indexer) {
			check(t, x.Add(held(t, x, "a", func(cm *corev1.ConfigMap) { cm.Name, cm.UID = "ghost", "ghost" })))
		},
		audit.Report{Extra: 1, Examples: []string{"default/ghost"}},
		[]string{"delete ghost"},
	},
	{
		"older",
		func(t *testing.T, x cache.Indexer) {
			check(t, x.Update(held(t, x, "b", func(cm *corev1.ConfigMap) { cm.ResourceVersion, cm.Data = "1", nil })))
		},
		audit.Report{Different: 1, Examples: []string{"default/b"}},
		[]string{"update b"},
	},
	{
		"same version, other UID",
		func(t *testing.T, x cache.Indexer) {
			check(t, x.Update(held(t, x, "b", func(cm *corev1.ConfigMap) { cm.UID = "another" })))
		},
		audit.Report{Different: 1, Examples: []string{"default/b"}},
		[]string{"update b"},
	},
	{
		"same version, other labels and data",
		func(t *testing.T, x cache.Indexer) {
			check(t, x.Update(held(t, x, "b", func(cm *corev1.ConfigMap) { cm.Labels, cm.Data = map[string]string{"x": "y"}, nil })))
		},
		audit.Report{Different: 1, Examples: []string{"default/b"}},
		[]string{"update b"},
	},
	{
		"an object was modified where it is",
		func(t *testing.T, x cache.Indexer) {
			// Nobody must do that; somebody will. In disk residency the cache of decoded
			// objects has it.
			obj, _, err := x.GetByKey("default/b")
			check(t, err)
			obj.(*corev1.ConfigMap).Labels = map[string]string{"x": "y"}
			obj.(*corev1.ConfigMap).Data = map[string]string{"value": "modified"}
		},
		audit.Report{Different: 1, Examples: []string{"default/b"}},
		[]string{"update b"},
	},
	{
		"all of it",
		func(t *testing.T, x cache.Indexer) {
			check(t, x.Delete(configMap("a", "")))
			check(t, x.Update(held(t, x, "b", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"x": "y"} })))
			check(t, x.Add(held(t, x, "c", func(cm *corev1.ConfigMap) { cm.Name = "ghost" })))
		},
		audit.Report{Missing: 1, Extra: 1, Different: 1, Examples: []string{"default/a", "default/b", "default/ghost"}},
		nil,
	},
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAudit_Repairs corrupts the cache of a running informer, which nothing but an audit
// notices, and checks that it and its handlers agree with the server afterwards, by one
// list.
func TestAudit_Repairs(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			bothModes(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c")
				p := w.start(w.audited).synced()
				w.wantReport(p.audit(), audit.Report{})
				lists := p.status().Lists
				p.recorder.take()

				c.corrupt(t, p.informer.GetIndexer())
				want := c.report
				want.Repaired = true
				w.wantReport(p.audit(), want)
				if c.events != nil {
					w.wantEvents(p.recorder, c.events...)
				}
				p.converged()
				if n := p.status().Lists - lists; n != 1 {
					t.Errorf("%d lists, want 1: %s", n, p.status().ListReason)
				}
				w.wantReport(p.audit(), audit.Report{})
				status := p.status().Audit
				if status.Runs[audit.Repaired] != 1 || status.Runs[audit.Verified] < 2 || status.Runs[audit.Failed] != 0 || status.Succeeded.IsZero() {
					t.Errorf("status %+v", status)
				}
				p.stop()
				if w.contents().Header != nil { // no store, no header
					p = w.start(w.audited).synced()
					p.converged()
					w.wantReport(p.audit(), audit.Report{})
					p.stop()
				}
			})
		})
	}
}

// TestAudit_FileChangedWhileDown changes the file between two processes, so that all
// its sums hold: the start believes it, and an audit does not.
func TestAudit_FileChangedWhileDown(t *testing.T) {
	for name, m := range storing {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make = m
				w.create("a", "b", "c")
				w.start(w.audited).synced().stop()
				w.rewrite(func(cm *corev1.ConfigMap) *corev1.ConfigMap {
					switch cm.Name {
					case "a":
						return nil
					case "b":
						cm.Labels, cm.Data = map[string]string{"x": "y"}, nil
					}
					return cm
				})
				p := w.start(w.audited).synced()
				if p.status().Lists != 0 || p.status().Outcome != informer.OutcomeResumed {
					t.Fatalf("%d lists, %+v", p.status().Lists, p.status())
				}
				w.wantReport(p.audit(), audit.Report{Missing: 1, Different: 1, Repaired: true})
				w.wantEvents(p.recorder, "initial b", "initial c", "add a", "update b")
				p.converged()
				p.stop()
			})
		})
	}
}

// rewrite changes all objects in the file.
func (w *world) rewrite(change func(*corev1.ConfigMap) *corev1.ConfigMap) {
	w.t.Helper()
	id := identity
	id.Form = store.FormTyped
	collection := must(w.memory.Open().Collection(id, "test"))
	codec := must(codec.New(&corev1.ConfigMap{}))
	var batch store.Batch
	check(w.t, collection.View(func(tx store.Tx) error {
		return tx.Scan("", func(key, value []byte) bool {
			obj := must(codec.Decode(value))
			op := store.Op{Key: string(key)}
			if cm := change(obj.(*corev1.ConfigMap)); cm != nil {
				op.Value = must(codec.Encode(cm))
			}
			batch.Ops = append(batch.Ops, op)
			return true
		})
	}))
	check(w.t, collection.Apply(batch))
	check(w.t, collection.Close())
}

// TestAudit_RestoredAndPassed restores the server from a backup while no process runs.
// When the next one starts, the server has passed the stored version by another way, on
// which the newest object that is stored has got the same version and UID, and other
// content. Nothing that can be seen at a start tells.
func TestAudit_RestoredAndPassed(t *testing.T) {
	for name, m := range storing {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make = m
				w.create("kept", "deleted", "changed")
				backup := w.server.Snapshot()
				p := w.start(w.audited).synced()
				w.update("changed", "before") // version n+1
				w.delete("deleted")           // n+2
				w.create("short-lived")       // n+3
				w.delete("short-lived")       // n+4
				p.converged()
				p.kill()

				w.server.Restore(backup)
				w.update("changed", "after") // n+1
				w.create("new")              // n+2
				for n := range 5 {           // n+7
					check(t, w.server.Create(&corev1.Secret{ObjectMeta: configMap(fmt.Sprint("s", n), "").ObjectMeta}))
				}
				p = w.start(w.audited).synced()
				if s := p.status(); s.Outcome != informer.OutcomeResumed {
					t.Fatalf("the start has found out by itself: %s, %s", s.Outcome, s.OutcomeReason)
				}
				w.wantReport(p.audit(), audit.Report{Missing: 2, Repaired: true, Examples: []string{"default/deleted", "default/new"}})
				p.converged() // also what differs in nothing but data
				p.stop()
			})
		})
	}
}

// TestAudit_Churn changes the server at random while audits run as often as they can:
// what is on its way is never taken for a difference.
func TestAudit_Churn(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	bothModes(t, func(t *testing.T, w *world) {
		r := rand.New(rand.NewPCG(seed, seed))
		for n := range 1200 {
			w.create(name(n))
		}
		p := w.start(w.audited, func(o *informer.Options) {
			o.Audit = informer.Audit{Period: 2 * time.Second, Rate: 1000}
		}).synced()
		newer := 0
		last := p.status().Audit.Last
		for n := 0; n < 3000 || p.status().Audit.Runs[audit.Verified] < 5 && n < 15_000; n++ {
			w.change(name(r.IntN(1500)), r.IntN(3) == 0)
			switch r.IntN(1500) {
			case 0:
				w.server.EndWatches()
			case 1:
				w.server.Compact()
			case 2:
				fault := w.server.Inject(apitest.Fault{Verb: "list", Status: http.StatusInternalServerError})
				time.AfterFunc(2*time.Second, fault.Remove)
			case 3: // the watch is late
				fault := w.server.Inject(apitest.Fault{Verb: "watch", Stall: true})
				time.AfterFunc(10*time.Second, fault.Remove)
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			if now := p.status().Audit.Last; !now.Finished.Equal(last.Finished) {
				last = now
				newer += now.Newer
				if now.Differences() > 0 {
					t.Errorf("the audit reports %+v", now)
					break
				}
			}
		}
		runs := p.status().Audit.Runs
		if newer == 0 || runs[audit.Verified] == 0 {
			t.Errorf("%d objects were newer than their page; audits: %v", newer, runs)
		}
		t.Logf("%d objects were newer than their page; audits: %v", newer, runs)
		time.Sleep(5 * time.Minute) // of backoff, and until no fault is left
		p.converged()
		p.stop()
	})
}

// What is on its way for too long ends the audit, and nothing is listed: a list would
// have to wait for the same disk, server or link.
func TestAudit_Behind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start(w.audited).synced()
		lists := p.status().Lists
		fault := w.server.Inject(apitest.Fault{Verb: "watch", Stall: true})
		w.update("a", "unseen")
		w.wantReport(p.audit(), audit.Report{Err: audit.ErrBehind})
		if p.status().Lists != lists {
			t.Errorf("%d lists", p.status().Lists-lists)
		}
		fault.Remove()
		p.converged()
		p.stop()
	})
}

// A transform decides what metadata is stored. What it does to labels is not compared.
// What it does to UIDs differs for ever: it is listed because of that once.
func TestAudit_Transform(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		uid := false
		transform := func(obj any) (any, error) {
			cm := obj.(*corev1.ConfigMap)
			cm.Labels = map[string]string{"made": "here"}
			if uid {
				cm.UID = "mine"
			}
			return cm, nil
		}
		p := w.transformed(transform, w.audited)
		p.run()
		w.wantReport(p.audit(), audit.Report{})
		p.stop()
		uid = true
		w.memory = storetest.NewMemory()
		p = w.transformed(transform, w.audited)
		p.run()
		synctest.Wait()
		lists := p.status().Lists
		for range 3 {
			w.wantReport(p.audit(), audit.Report{Different: 1, Err: audit.ErrUnrepaired})
		}
		if n := p.status().Lists - lists; n != 1 {
			t.Errorf("%d lists because of what a list does not change, want 1", n)
		}
		p.stop()
	})
}

// restoredMetadata lists what a server has that was restored to an earlier version.
type restoredMetadata struct{}

func (restoredMetadata) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

// A server at an earlier version is listed, although no object was compared.
func TestAudit_Restored(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start(w.audited, func(o *informer.Options) { o.Metadata = restoredMetadata{} }).synced()
		lists := p.status().Lists
		w.wantReport(p.audit(), audit.Report{Err: audit.ErrRestored, Repaired: true})
		if n := p.status().Lists - lists; n != 1 {
			t.Errorf("%d lists, want 1", n)
		}
		p.converged()
		p.stop()
	})
}

// The objects are lost while a page is held back: what is found then says nothing.
func TestAudit_LostMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = onDisk
		w.create("a", "b", "c")
		s := &tapped{Store: w.memory.Open()}
		held := make(chan struct{})
		asked := make(chan struct{}, 100)
		p := w.prepareIn(s, w.audited, func(o *informer.Options) {
			o.Metadata = heldMetadata{o.Metadata, asked, held}
		})
		p.recorder = p.handle()
		p.run()
		p.synced()
		<-asked
		// What fills the collection is held back until the page was compared in vain.
		fault := w.server.Inject(apitest.Fault{Status: http.StatusServiceUnavailable})
		s.collection.Quarantine(errors.New("found by a test"))
		synctest.Wait()
		close(held)
		time.Sleep(10 * time.Second)
		fault.Remove()
		w.wantReport(p.audit(), audit.Report{})
		if runs := p.status().Audit.Runs; len(asked) == 0 || runs[audit.Failed] > 0 {
			t.Errorf("the page was not listed again: %v", runs)
		}
		p.converged()
		p.stop()
	})
}

// heldMetadata says that it was asked, and holds the answer back.
type heldMetadata struct {
	reflector.MetadataLister
	asked chan struct{}
	held  chan struct{}
}

func (m heldMetadata) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := m.MetadataLister.List(ctx, o)
	m.asked <- struct{}{}
	<-m.held
	return list, err
}

// pausing is a metrics provider that can hold the pump between two batches.
type pausing struct {
	*provider
	armed atomic.Bool
}

func (p *pausing) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return p
}

// Observe implements cache.HistogramMetric. It is called after each batch.
func (p *pausing) Observe(float64) {
	if p.armed.Swap(false) {
		<-time.After(5 * time.Minute)
	}
}

// TestAudit_Resync holds the pump in the middle of a resync until an audit has asked for
// a list: handlers get the rest of it first.
func TestAudit_Resync(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const count = 2100
		for n := range count {
			w.create(name(n))
		}
		pump := &pausing{provider: newProvider()}
		_, identifier := named(t, "audit-resync")
		p := w.start(w.audited, identifier, func(o *informer.Options) {
			o.InformerMetricsProvider, o.ResyncPeriod = pump, 10*time.Minute
		}).synced()
		p.recorder.take()
		time.Sleep(10*time.Minute - time.Millisecond) // so that no audit comes in between
		synctest.Wait()
		before := p.status()
		check(t, p.informer.GetIndexer().Delete(configMap(name(count-1), "")))
		pump.armed.Store(true)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		resyncs := 0
		for _, event := range p.recorder.take() {
			if strings.HasPrefix(event, "resync ") {
				resyncs++
			}
		}
		after := p.status()
		if resyncs != count-1 || after.Audit.Runs[audit.Repaired] != before.Audit.Runs[audit.Repaired]+1 || after.Lists != before.Lists+1 {
			t.Errorf("%d resyncs, %d lists, %+v", resyncs, after.Lists, after.Audit)
		}
		p.converged()
		p.stop()
	})
}

// TestAudit_StrippedMetadata audits an informer whose ListerWatcher changes metadata, which it
// should have left to a transform: a list repairs nothing, and none is made again.
func TestAudit_StrippedMetadata(t *testing.T) {
	bothModes(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b"} {
			cm := w.configMap(name, "")
			cm.Annotations = map[string]string{"large": "yes"}
			check(t, w.server.Create(cm))
		}
		w.create("c")
		make := w.make
		w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
			return make(stripping{lw.(cache.ListerWatcherWithContext)}, o)
		}
		p := w.start(w.audited).synced()
		lists := p.status().Lists
		for range 3 {
			w.wantReport(p.audit(), audit.Report{Different: 2, Err: audit.ErrUnrepaired})
		}
		if n := p.status().Lists - lists; n != 1 {
			t.Errorf("%d lists, want 1", n)
		}
		p.stop()
	})
}

// stripping lists objects without their annotations. It does not stream.
type stripping struct{ cache.ListerWatcherWithContext }

func (stripping) IsWatchListSemanticsUnSupported() bool { return true }

func (s stripping) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s stripping) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

func (s stripping) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, o)
	if cms, ok := list.(*corev1.ConfigMapList); ok {
		for n := range cms.Items {
			cms.Items[n].Annotations = nil
		}
	}
	return list, err
}
