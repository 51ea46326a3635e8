package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/textlogger"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

var header = regexp.MustCompile(`^[IE]\d+ .*?\] `)

// lines returns what was written, without the time and place of each line.
func (j *journal) lines() (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		lines = append(lines, header.ReplaceAllString(strings.TrimSpace(line), ""))
	}
	return lines
}

// logging makes an informer write what has level 0, and no other, into j.
func (j *journal) logging(o *informer.Options) {
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(j), textlogger.Verbosity(0)))
	o.Logger = &logger
}

func of(resource string) func(*informer.Options) {
	return func(o *informer.Options) { o.Identity.Resource = resource }
}

func inCluster(name string) func(*informer.Options) {
	return func(o *informer.Options) {
		o.Cluster = func(context.Context) (string, error) { return name, nil }
	}
}

func withSchema(name string) func(*informer.Options) {
	return func(o *informer.Options) {
		o.Schema = func(context.Context) (string, error) { return name, nil }
	}
}

func withoutStore(o *informer.Options) { o.Store = nil }

// startCase is a second start, after one with three objects.
type startCase struct {
	name string
	// first changes the informer of the first start, and stop ends it; a kill by
	// default.
	first []func(*informer.Options)
	stop  func(*process)
	// meanwhile is what happens in between.
	meanwhile func(t *testing.T, w *world)
	second    []func(*informer.Options)

	outcome informer.Outcome
	reason  string
	// departed objects are reported, too.
	departed string
}

var startCases = []startCase{
	{name: "nothing has changed", outcome: informer.OutcomeResumed, reason: "the server is still at resourceVersion"},
	{
		name: "something has changed", outcome: informer.OutcomeResumed, reason: "the watch went on from resourceVersion", departed: "1",
		meanwhile: func(_ *testing.T, w *world) { w.delete("a"); w.create("d") },
	},
	{
		name: "expired", outcome: informer.OutcomeReconciled, reason: "the server has forgotten the changes since", departed: "1",
		meanwhile: func(_ *testing.T, w *world) { w.delete("a"); w.server.Compact() },
	},
	{
		name: "small", outcome: informer.OutcomeReconciled, reason: "is cheaper than proving",
		stop: (*process).stop, second: []func(*informer.Options){func(o *informer.Options) { o.ListBelow = 0 }},
	},
	{
		name: "other schema", outcome: informer.OutcomeReconciled, reason: "the schema of the resource has changed",
		first: []func(*informer.Options){withSchema("one")}, second: []func(*informer.Options){withSchema("two")},
	},
	{
		name: "no bookmarks", outcome: informer.OutcomeReconciled, reason: "sent no bookmark",
		meanwhile: func(t *testing.T, w *world) {
			w.server.Inject(apitest.Fault{Verb: "watch", NoBookmarks: true})
			// It hides the newest write from the watch, so that nothing arrives.
			if err := w.server.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}); err != nil {
				t.Fatal(err)
			}
		},
	},
	{
		name: "other transform", outcome: informer.OutcomeCold, reason: "another version of the type, the codec or the transform",
		// The delete is delivered all the same.
		departed: "1", meanwhile: func(_ *testing.T, w *world) { w.delete("a") },
		second: []func(*informer.Options){func(o *informer.Options) { o.TransformVersion = "2" }},
	},
	{
		name: "other cluster", outcome: informer.OutcomeCold, reason: "the stored objects belong to another cluster",
		first: []func(*informer.Options){inCluster("one")}, second: []func(*informer.Options){inCluster("two")},
	},
	{
		name: "other identity", outcome: informer.OutcomeCold, reason: "nothing is stored yet",
		first: []func(*informer.Options){of("configmaps2")},
	},
	{
		name: "without a store", outcome: informer.OutcomeCold, reason: "it is kept in memory only, or has no store",
		second: []func(*informer.Options){withoutStore},
	},
	{
		name: "damaged", outcome: informer.OutcomeCold, reason: "the stored objects cannot be read: ",
		meanwhile: func(t *testing.T, w *world) {
			c, err := w.memory.Open().Collection(withForm(identity), "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Apply(store.Batch{Ops: []store.Op{{Key: "default/a", Value: store.Seal([]byte("damaged"))}}}); err != nil {
				t.Fatal(err)
			}
		},
	},
	{
		name: "identity unknown", outcome: informer.OutcomeCold, reason: "nobody knows",
		second: []func(*informer.Options){func(o *informer.Options) {
			o.Identity = store.Identity{}
			o.Identify = func(context.Context) (store.Identity, error) { return store.Identity{}, errors.New("nobody knows") }
		}},
	},
}

// TestInformer_Outcome checks what status and log say about a start.
func TestInformer_Outcome(t *testing.T) {
	for _, c := range startCases {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { c.run(t, w) })
		})
	}
}

func (c startCase) run(t *testing.T, w *world) {
	transformed := func(o *informer.Options) {
		if o.TransformVersion == "" {
			o.TransformVersion = "1"
		}
	}
	w.make = func(lw cache.ListerWatcher, o informer.Options) cache.SharedIndexInformer {
		inf := persistent(lw, o)
		if err := inf.SetTransform(func(obj any) (any, error) { return obj, nil }); err != nil {
			t.Error(err)
		}
		return inf
	}
	w.create("a", "b", "c")
	p := w.start(append(c.first, transformed)...).synced()
	if c.stop == nil {
		c.stop = (*process).kill
	}
	c.stop(p)
	if c.meanwhile != nil {
		c.meanwhile(t, w)
	}
	var log journal
	p = w.start(append(c.second, transformed, log.logging)...).synced()
	defer p.stop()

	s := p.status()
	if s.Outcome != c.outcome || !strings.Contains(s.OutcomeReason, c.reason) {
		t.Errorf("%s because %q, want %s because %q", s.Outcome, s.OutcomeReason, c.outcome, c.reason)
	}
	started := slices.DeleteFunc(log.lines(), func(line string) bool { return !strings.HasPrefix(line, `"Informer started"`) })
	if len(started) != 1 {
		t.Fatalf("%d lines about the start, want 1:\n%s", len(started), strings.Join(log.lines(), "\n"))
	}
	if c.departed == "" {
		c.departed = "0"
	}
	persistent := map[bool]string{true: "true", false: "false"}[s.Persistent]
	for _, want := range []string{
		` outcome="` + string(c.outcome) + `"`, c.reason, ` objects=` + fmt.Sprint(len(w.state())),
		` departed=` + c.departed, ` duration="`, ` persistent=` + persistent,
	} {
		if !strings.Contains(started[0], want) {
			t.Errorf("the log does not say %q: %s", want, started[0])
		}
	}
}

// TestInformer_Outcome_IsSilentOtherwise checks that a start in which nothing is
// wrong writes one line at level 0, and that what goes on in steady state writes
// none.
func TestInformer_Outcome_IsSilentOtherwise(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var log journal
		w.create("a")
		p := w.start(log.logging).synced()
		if got := log.lines(); len(got) != 1 {
			t.Errorf("%d lines, want 1:\n%s", len(got), strings.Join(got, "\n"))
		}
		w.whileDown(func() { w.delete("a") }) // a list in steady state
		time.Sleep(20 * time.Minute)
		p.converged()
		if s := p.status(); s.Lists != 2 || s.Outcome != informer.OutcomeCold {
			t.Errorf("%d lists, outcome %s; what comes later does not change it", s.Lists, s.Outcome)
		}
		p.stop()
		if got := started(&log); got != 1 {
			t.Errorf("%d lines about one start", got)
		}
	})
}

func started(log *journal) (n int) {
	for _, line := range log.lines() {
		if strings.HasPrefix(line, `"Informer started"`) {
			n++
		}
	}
	return n
}

// TestInformer_Outcome_UnknownUntilConfirmed checks that stored objects that are
// shown without a proof are said to be, and that the start ends with the proof.
func TestInformer_Outcome_UnknownUntilConfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		var log journal
		p := w.start(log.logging, func(o *informer.Options) { o.Start = informer.Stale(time.Second) }).synced()
		defer p.stop()
		if s := p.status(); s.Outcome != "" || s.OutcomeReason != "" {
			t.Errorf("outcome %s, %q without a server", s.Outcome, s.OutcomeReason)
		}
		shown := slices.ContainsFunc(log.lines(), func(line string) bool {
			return strings.HasPrefix(line, `"Showing stored objects before they are confirmed"`) && strings.Contains(line, `informer="v1/configmaps?form=typed"`)
		})
		if !shown || started(&log) != 0 {
			t.Errorf("log without a server:\n%s", strings.Join(log.lines(), "\n"))
		}
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := p.status(); s.Outcome != informer.OutcomeResumed || started(&log) != 1 {
			t.Errorf("outcome %s, log:\n%s", s.Outcome, strings.Join(log.lines(), "\n"))
		}
	})
}

// TestStatus_Staleness checks that the age of the state is never negative, and that
// a clock that was set back between two runs does not make it young for ever.
func TestStatus_Staleness(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.prepare()
		if s := p.status(); s.Staleness != 0 || !s.Contact.IsZero() {
			t.Errorf("before the start: %s since %s", s.Staleness, s.Contact)
		}
		p.recorder = p.handle()
		time.Sleep(time.Hour)
		p.run()
		p.synced()
		if s := p.status(); s.Staleness != 0 {
			t.Errorf("%s right after the start", s.Staleness)
		}
		p.kill()
		if err := w.server.Down(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		stale := func(o *informer.Options) { o.Start = informer.Stale(time.Second) }
		p = w.start(stale).synced()
		if s := p.status(); s.Staleness != time.Hour+time.Second {
			t.Errorf("%s after an hour away and a second of waiting", s.Staleness)
		}
		p.kill()

		set(t, w, time.Now().Add(1000*time.Hour)) // the clock was ahead when this was written
		p = w.start(stale).synced()
		if s := p.status(); s.Staleness != time.Second {
			t.Errorf("%s, want no less than what this run knows: 1s", s.Staleness)
		}
		time.Sleep(time.Hour)
		if s := p.status(); s.Staleness != time.Hour+time.Second {
			t.Errorf("%s an hour later", s.Staleness)
		}
		p.kill()
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
	})
}

// set changes when the server last vouched for what is stored.
func set(t *testing.T, w *world, contact time.Time) {
	t.Helper()
	c, err := w.memory.Open().Collection(withForm(identity), "test")
	if err != nil {
		t.Fatal(err)
	}
	var h store.Header
	err = c.View(func(tx store.Tx) (err error) {
		h, err = tx.Header()
		return err
	})
	h.Contact = contact.UTC()
	if err = errors.Join(err, c.Apply(store.Batch{Header: &h})); err != nil {
		t.Fatal(err)
	}
}

// TestStatus_IdentityAndType checks how a status says what it is of.
func TestStatus_IdentityAndType(t *testing.T) {
	deployments := &unstructured.Unstructured{}
	deployments.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	configMaps := store.Identity{Version: "v1", Resource: "configmaps"}
	for _, c := range []struct {
		name     string
		example  runtime.Object
		options  informer.Options
		identity store.Identity
		typeName string
	}{
		{"identity", &corev1.ConfigMap{}, informer.Options{Identity: configMaps}, withForm(configMaps), "*v1.ConfigMap"},
		{"none", &corev1.ConfigMap{}, informer.Options{}, store.Identity{}, "*v1.ConfigMap"},
		{"any kind", deployments, informer.Options{}, store.Identity{}, "apps/v1 Deployment"},
		{"unknown kind", &unstructured.Unstructured{}, informer.Options{}, store.Identity{}, "*unstructured.Unstructured"},
		{"no type", nil, informer.Options{}, store.Identity{}, "<nil>"},
		{"described", &corev1.ConfigMap{}, informer.Options{ObjectDescription: "settings"}, store.Identity{}, "settings"},
	} {
		s, ok := informer.StatusOf(must(informer.New(&cache.ListWatch{}, c.example, c.options)))
		if !ok || s.Identity != c.identity || s.Type != c.typeName {
			t.Errorf("%s: %v, %q, want %v, %q", c.name, s.Identity, s.Type, c.identity, c.typeName)
		}
	}
}

// TestStatus_IdentityIsFoundWhenItRuns checks a place that is known late.
func TestStatus_IdentityIsFoundWhenItRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare(func(o *informer.Options) {
			o.Identity = store.Identity{}
			o.Identify = func(context.Context) (store.Identity, error) { return identity, nil }
		})
		if s := p.status(); s.Identity != (store.Identity{}) {
			t.Errorf("identity %v before it is known", s.Identity)
		}
		p.recorder = p.handle()
		p.run()
		defer p.stop()
		p.synced()
		if s := p.status(); s.Identity != withForm(identity) {
			t.Errorf("identity %v", s.Identity)
		}
	})
}

// managed is how controller-runtime and others add to an informer: by embedding it.
type managed struct {
	cache.SharedIndexInformer
	started bool
}

func TestStatusOf_ThroughEmbedding(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		defer p.stop()
		var inf cache.SharedIndexInformer = &managed{SharedIndexInformer: p.informer, started: true}
		inf = struct{ cache.SharedIndexInformer }{inf}
		if s, ok := informer.StatusOf(inf); !ok || s.Outcome != informer.OutcomeCold || s.Objects != 1 {
			t.Errorf("status %+v, %v", s, ok)
		}
	})
}
