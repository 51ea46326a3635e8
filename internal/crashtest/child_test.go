package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// life is how a child lives: the settings of its program.
type life struct {
	URL, Path string
	// Seed decides how long handlers take. Slow ones fall behind.
	Seed uint64
	Slow bool
	// SlowIndex makes an index function take its time, and with it the applying
	// of long lists.
	SlowIndex bool
	// Policy is confirmed, resumed or stale.
	Policy    string
	ListBelow int64
	Flush     time.Duration
	// Disk is disk residency.
	Disk bool
	// Late registers handlers after the informers have synced, as after winning
	// a leader election.
	Late bool
	// Hold makes it wait for commandBegin between opening the file and starting
	// informers.
	Hold bool
	// IndexVersion and TransformVersion are those of the program.
	IndexVersion, TransformVersion string
}

func (l life) policy() informer.StartPolicy {
	switch l.Policy {
	case "resumed":
		return informer.Resumed
	case "stale":
		return informer.Stale(hurry * 50 * time.Millisecond)
	}
	return informer.Confirmed
}

// The words of the child. A line is a word and fields, separated by tabs. One
// write per line, of less than a pipe's atomic 4 KiB, so that a kill leaves whole
// lines.
const (
	wordOpen    = "open"    // quarantined path
	wordAdd     = "add"     // spec, initial, version: when OnAdd begins
	wordUpdate  = "update"  // spec, UID before, version: when OnUpdate begins
	wordDelete  = "delete"  // spec, key, UID if known: when OnDelete ends
	wordSynced  = "synced"  // spec, number of lists
	wordObject  = "object"  // spec, transform, version: part of a dump
	wordIndexed = "indexed" // spec, value, key: part of a dump
	wordDumped  = "dumped"
	wordDisk    = "disk"    // spec, bytes pending, version in the file, error
	wordDisks   = "disks"   // the end of one wordDisk per spec
	wordUnsaved = "unsaved" // error of closing the file
	wordStopped = "stopped"
	wordFailed  = "failed" // error

	commandBegin = "begin"
	commandDump  = "dump"
	commandDisk  = "disk"
	commandStop  = "stop"
)

// reporter writes lines to the parent.
type reporter struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *reporter) line(fields ...any) {
	var b bytes.Buffer
	writeLine(&b, fields...)
	r.write(b.Bytes())
}

// write writes whole lines. An error means that the parent is gone, which the
// command loop finds out.
func (r *reporter) write(lines []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.w.Write(lines)
}

func writeLine(b *bytes.Buffer, fields ...any) {
	for i, field := range fields {
		if i > 0 {
			b.WriteByte('\t')
		}
		fmt.Fprint(b, field)
	}
	b.WriteByte('\n')
}

// program is the child: a controller without a purpose.
type program struct {
	life
	out       *reporter
	client    *http.Client
	factories map[selection]*factory.Factory
	informers map[string]cache.SharedIndexInformer
	// registrations are those made before the start.
	registrations map[string]cache.ResourceEventHandlerRegistration
	// indexed counts calls of the index function.
	indexed atomic.Int64
}

// selection is what the informers of one factory have in common.
type selection struct{ namespace, labels string }

// runInformers is the child of TestKill. It ends when it is told to stop, or with
// its parent.
func runInformers(argument string) error {
	p := &program{out: &reporter{w: os.Stdout}}
	if err := json.Unmarshal([]byte(argument), &p.life); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	commands := make(chan string)
	go func() {
		defer stop()
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan() && scanner.Text() != commandStop; {
			commands <- scanner.Text()
		}
	}()
	ignore := goleak.IgnoreCurrent()
	err := p.run(ctx, commands)
	p.client.CloseIdleConnections()
	if err = errors.Join(err, goleak.Find(ignore)); err != nil {
		p.out.line(wordFailed, fmt.Sprintf("%q", err))
		return err
	}
	p.out.line(wordStopped)
	return nil
}

func (p *program) run(ctx context.Context, commands <-chan string) error {
	p.client = &http.Client{Transport: &http.Transport{}}
	clientset, err := kubernetes.NewForConfigAndClient(&rest.Config{
		Host: p.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}, p.client)
	if err != nil {
		return err
	}
	//hygiene:allow bolt.Open: in a process of its own; fileChecker checks the file
	db, err := bolt.Open(p.Path, bolt.Options{FlushInterval: p.Flush})
	if err != nil {
		return err
	}
	p.out.line(wordOpen, db.Quarantined())
	err = p.build(clientset, db)
	var watching sync.WaitGroup
	if err == nil && p.begin(ctx, commands) {
		for _, f := range p.factories {
			f.StartWithContext(ctx)
		}
		for _, s := range specs {
			watching.Go(func() { p.follow(ctx, s) })
		}
		p.obey(ctx, commands)
	}
	<-ctx.Done()
	for _, f := range p.factories {
		f.Shutdown()
	}
	watching.Wait()
	if unsaved := db.Close(); unsaved != nil {
		p.out.line(wordUnsaved, fmt.Sprintf("%q", unsaved))
	}
	return err
}

// begin waits until the informers may start, or returns false at the end.
func (p *program) begin(ctx context.Context, commands <-chan string) bool {
	if !p.Hold {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case command := <-commands:
		return command == commandBegin
	}
}

// build makes the informers, one factory for each selection.
func (p *program) build(clientset kubernetes.Interface, db store.Store) error {
	p.factories = map[selection]*factory.Factory{}
	p.informers = map[string]cache.SharedIndexInformer{}
	p.registrations = map[string]cache.ResourceEventHandlerRegistration{}
	for _, s := range specs {
		key := selection{s.namespace, s.labelSelector()}
		if p.factories[key] == nil {
			f, err := p.newFactory(clientset, db, key)
			if err != nil {
				return err
			}
			p.factories[key] = f
		}
		generic, err := p.factories[key].ForResource(s.gvr)
		if err != nil {
			return err
		}
		p.informers[s.name] = generic.Informer()
		err = generic.Informer().AddIndexers(cache.Indexers{indexName: p.index})
		if err != nil {
			return err
		}
		if !p.Late {
			if p.registrations[s.name], err = p.handle(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *program) newFactory(clientset kubernetes.Interface, db store.Store, s selection) (*factory.Factory, error) {
	options := []factory.Option{
		factory.WithNamespace(s.namespace),
		factory.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = s.labels }),
		factory.WithStartPolicy(p.policy()),
		factory.WithListBelow(p.ListBelow),
		// Lives are short. With a longer one each would be told of all that is gone.
		factory.WithDepartedRetention(2 * time.Second),
		factory.WithClock(hurriedClock{}),
		factory.WithIndexVersions(map[string]string{indexName: p.IndexVersion}),
	}
	if p.Disk {
		// Less than what is there.
		options = append(options, factory.WithResidency(informer.Disk, indexer.MinMemoryBudget))
	}
	if p.TransformVersion != "" {
		options = append(options, factory.WithTransform(p.transform, p.TransformVersion))
	}
	return factory.New(clientset, db, options...)
}

// index is the index function of this version of the program.
func (p *program) index(obj any) ([]string, error) {
	if p.SlowIndex && p.indexed.Add(1)%10 == 0 {
		<-time.After(50 * time.Microsecond)
	}
	return indexFuncs[p.IndexVersion](obj)
}

// transform marks what this version of the program has seen.
func (p *program) transform(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.GetAnnotations()[transformAnnotation] = p.TransformVersion
	}
	return obj, nil
}

func (p *program) handle(s spec) (cache.ResourceEventHandlerRegistration, error) {
	h := &handler{spec: s, out: p.out, slow: p.Slow, random: rand.New(rand.NewPCG(p.Seed, uint64(len(s.name))))}
	return p.informers[s.name].AddEventHandler(h)
}

// follow reports when an informer and its handler have synced.
func (p *program) follow(ctx context.Context, s spec) {
	inf := p.informers[s.name]
	if !wait(ctx, inf.HasSyncedChecker()) {
		return
	}
	registration := p.registrations[s.name]
	if p.Late {
		var err error
		switch registration, err = p.handle(s); {
		case err != nil && ctx.Err() != nil: // the stop was faster
			return
		case err != nil:
			p.out.line(wordFailed, fmt.Sprintf("%q", err))
			return
		}
	}
	if wait(ctx, registration.HasSyncedChecker()) {
		status, _ := informer.StatusOf(inf)
		p.out.line(wordSynced, s.name, status.Lists)
	}
}

func wait(ctx context.Context, checker cache.DoneChecker) bool {
	select {
	case <-checker.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// obey carries out commands until the end.
func (p *program) obey(ctx context.Context, commands <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case command := <-commands:
			switch {
			case command == commandDump && p.confirmed(ctx):
				p.out.write(p.dump())
			case command == commandDisk:
				p.out.write(p.disk())
			}
		}
	}
}

// confirmed waits until every informer has its proof.
func (p *program) confirmed(ctx context.Context) bool {
	for _, inf := range p.informers {
		if !wait(ctx, informer.ConfirmedChecker(inf)) {
			return false
		}
	}
	return true
}

// dump is the content of all indexers.
func (p *program) dump() []byte {
	var b bytes.Buffer
	for name, inf := range p.informers {
		if p.Disk {
			if err := checkReads(inf); err != nil {
				writeLine(&b, wordFailed, fmt.Sprintf("%s: %q", name, err))
			}
		}
		for _, item := range inf.GetIndexer().List() {
			if obj, ok := item.(metav1.Object); ok {
				writeLine(&b, wordObject, name, obj.GetAnnotations()[transformAnnotation], versionOf(obj))
			}
		}
		for _, value := range inf.GetIndexer().ListIndexFuncValues(indexName) {
			keys, err := inf.GetIndexer().IndexKeys(indexName, value)
			if err != nil {
				writeLine(&b, wordFailed, err)
			}
			for _, key := range keys {
				writeLine(&b, wordIndexed, name, value, key)
			}
		}
	}
	writeLine(&b, wordDumped)
	return b.Bytes()
}

// disk is what the informers say about the disk.
func (p *program) disk() []byte {
	var b bytes.Buffer
	for _, s := range specs {
		status, _ := informer.StatusOf(p.informers[s.name])
		d := status.Durability
		failure := ""
		if d.Err != nil {
			failure = fmt.Sprintf("%q", d.Err)
		}
		writeLine(&b, wordDisk, s.name, d.Pending, status.PersistedRV, failure)
	}
	writeLine(&b, wordDisks)
	return b.Bytes()
}

// hurry is by how much timers of the informers are shorter, so that backoff after
// errors does not take most of the time of the test.
const hurry = 10

// hurriedClock tells the time right, but waits less.
type hurriedClock struct{ clock.RealClock }

func (c hurriedClock) After(d time.Duration) <-chan time.Time { return c.RealClock.After(d / hurry) }

func (c hurriedClock) NewTimer(d time.Duration) clock.Timer { return c.RealClock.NewTimer(d / hurry) }

// handler tells the parent what it is told, and takes its time.
type handler struct {
	spec   spec
	out    *reporter
	slow   bool
	random *rand.Rand
}

func (h *handler) OnAdd(obj any, isInInitialList bool) {
	h.out.line(wordAdd, h.spec.name, isInInitialList, versionOfAny(obj))
}

func (h *handler) OnUpdate(old, obj any) {
	h.out.line(wordUpdate, h.spec.name, versionOfAny(old).uid, versionOfAny(obj))
	h.work()
}

// OnDelete reports at its end: a delete whose handler did not return does not
// count as delivered.
func (h *handler) OnDelete(obj any) {
	h.work()
	v := versionOfAny(obj)
	h.out.line(wordDelete, h.spec.name, v.key, v.uid)
}

// work takes as long as the work of a controller may, to be killed in it.
func (h *handler) work() {
	if h.slow && h.random.IntN(4) == 0 || h.random.IntN(40) == 0 {
		<-time.After(time.Duration(h.random.IntN(2000)) * time.Microsecond)
	}
}

// versionOfAny accepts what handlers are given. Of a tombstone without an object
// only the key is known.
func versionOfAny(obj any) version {
	var key string
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		key, obj = tombstone.Key, tombstone.Obj
	}
	if o, ok := obj.(metav1.Object); ok {
		return versionOf(o)
	}
	return version{key: key}
}
