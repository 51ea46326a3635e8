// The program whose versions the tests run: a controller that looks at what is there
// and ends. Versions differ in the build tag gained, the variable rules and the module
// example.com/parts.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
)

// rules is the label that the index function of this version indexes by, and that the
// transform notes. The linker sets it.
var rules = "none"

// revision makes another program of the same source.
var revision string

// settings are the argument of the program, and report is its output, both in JSON. The
// tests have their own of the same form.
type settings struct {
	URL, Path string
	// Resource is configmaps or widgets.
	Resource                       string
	Namespace, Labels, Fields      string
	Disk, Transform                bool
	TransformVersion, IndexVersion string
	// Offline is for a program that cannot reach the server, and shows what is stored under
	// the policy Stale: it ends when that has been shown, or without Shown after a while.
	Offline, Shown bool
}

type report struct {
	// Objects are what reads show, by key.
	Objects map[string]string
	// Index has the keys of each value of the index.
	Index map[string][]string
	// Events are what the handler was told, in order.
	Events []string
	// Indexed and Transformed count calls of the functions.
	Indexed, Transformed int64
	Synced, Confirmed    bool
	Outcome, Reason      string
	Lists                int
	Persistent           bool
}

// indexName is the same in all versions.
const indexName = "rules"

// stale is when the policy shows what is stored; hidden is how long the program waits for
// what must not be shown.
const (
	stale  = 10 * time.Millisecond
	hidden = 50 * stale
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(argument string) error {
	p := &program{events: []string{}}
	if err := json.Unmarshal([]byte(argument), &p.settings); err != nil {
		return err
	}
	db, err := bolt.Open(p.Path, bolt.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	inf, err := p.newInformer(db)
	if err != nil {
		return err
	}
	if err := inf.AddIndexers(cache.Indexers{indexName: p.index}); err != nil {
		return err
	}
	registration, err := inf.AddEventHandler(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	if p.Offline && !p.Shown {
		<-time.After(hidden)
	} else {
		<-registration.HasSyncedChecker().Done()
	}
	if !p.Offline {
		<-informer.ConfirmedChecker(inf).Done()
	}
	r, err := p.report(inf)
	cancel()
	running.Wait()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// program is a handler, and has the functions that versions differ in.
type program struct {
	settings
	indexed, transformed atomic.Int64

	mu     sync.Mutex
	events []string
}

func (p *program) report(inf cache.SharedIndexInformer) (report, error) {
	status, _ := informer.StatusOf(inf)
	r := report{
		Objects: map[string]string{}, Index: map[string][]string{}, Indexed: p.indexed.Load(), Transformed: p.transformed.Load(),
		Synced: status.Synced, Confirmed: status.Confirmed,
		Outcome: string(status.Outcome), Reason: status.OutcomeReason, Lists: status.Lists, Persistent: status.Persistent,
	}
	for _, obj := range inf.GetStore().List() {
		r.Objects[keyOf(obj)] = describe(obj)
	}
	for _, value := range inf.GetIndexer().ListIndexFuncValues(indexName) {
		keys, err := inf.GetIndexer().IndexKeys(indexName, value)
		if err != nil {
			return r, err
		}
		r.Index[value] = keys
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Events = p.events
	return r, nil
}

// index is the index function of the informer.
func (p *program) index(obj any) ([]string, error) {
	p.indexed.Add(1)
	return indexByRules(obj)
}

// indexByRules indexes by the label that this version is interested in.
func indexByRules(obj any) ([]string, error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("a %T", obj)
	}
	return []string{rules + "=" + m.GetLabels()[rules]}, nil
}

// transform notes which version has seen the object.
func (p *program) transform(obj any) (any, error) {
	p.transformed.Add(1)
	if m, ok := obj.(metav1.Object); ok {
		m.SetAnnotations(map[string]string{"rules": rules})
	}
	return obj, nil
}

// describe is what this version sees in an object.
func describe(obj any) string {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return o.Data["value"] + " " + o.Annotations["rules"]
	case *Widget:
		return fmt.Sprintf("%+v %+v", o.Spec, o.Part)
	case cache.DeletedFinalStateUnknown:
		if o.Obj == nil {
			return "unknown"
		}
		return describe(o.Obj)
	}
	return fmt.Sprintf("%T", obj)
}

func keyOf(obj any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return err.Error()
	}
	return key
}

func (p *program) tell(event string, obj any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event+" "+keyOf(obj)+" "+describe(obj))
}

// OnAdd implements cache.ResourceEventHandler.
func (p *program) OnAdd(obj any, _ bool) { p.tell("add", obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (p *program) OnUpdate(_, obj any) { p.tell("update", obj) }

// OnDelete implements cache.ResourceEventHandler.
func (p *program) OnDelete(obj any) { p.tell("delete", obj) }
