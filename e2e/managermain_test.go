package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/restmapper"
	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
)

// managersEnv holds the managersConfig of a process that is to run managers of
// controller-runtime instead of tests.
const managersEnv = "WARMCACHE_E2E_MANAGERS"

// managersConfig is what a process with managers is given.
type managersConfig struct {
	Host, Token, UserAgent string
	CA                     []byte
	// Path is the file.
	Path string
	// Web and DB are the two namespaces that are watched.
	Web, DB string
	// Managers is how many there are, all on the same file.
	Managers int
	// Unidentified leaves factory.Identify out.
	Unidentified bool
	// Stale chooses the start policy.
	Stale     time.Duration
	Residency informer.Residency
	// AllIndexed indexes what is watched in any form, and not only typed objects.
	AllIndexed bool
}

// managersMessage is a line that such a process prints. Exactly one field is set.
type managersMessage struct {
	// Reconciled says what a reconciler has found.
	Reconciled *reconciled `json:",omitempty"`
	// Snapshot answers a line on standard input.
	Snapshot *managersSnapshot `json:",omitempty"`
}

// commandIndex is a line on standard input that adds indices to managers that run
// without AllIndexed. Any other line has no effect but the answer.
const commandIndex = "index"

// reconciled is one call of a reconciler, by the name of the controller.
type reconciled struct {
	Controller, Key string
	// RV is empty if there is no such object.
	RV string
}

// managersSnapshot is what the caches of all managers hold.
type managersSnapshot struct {
	Caches []cacheContents
	// Informers has the status of each informer of all managers.
	Informers []status
}

// cacheContents is what the cache of one manager returns.
type cacheContents struct {
	// Synced says that the cache does.
	Synced bool
	// Objects are by watch, namespace and key.
	Objects map[string]map[string]map[string]state
	// ByValue has the keys of the objects that the index finds, by watch and value.
	ByValue map[string]map[string][]string
}

// watchedKind is what one controller watches, and how.
type watchedKind struct {
	name string
	kind schema.GroupVersionKind
	gvr  schema.GroupVersionResource
	// object and list are empty objects as the cache holds them.
	object func() client.Object
	list   func() client.ObjectList
	// metadata says that the controller is built OnlyMetadata.
	metadata bool
	// places are the informers, by namespace.
	places map[string]place
	// indexed says that objects are indexed by value.
	indexed bool
	// transform is what the cache does to the objects.
	transform cache.TransformFunc
}

// place is what one informer selects, in one namespace or, with "", in none.
type place struct{ labels, fields string }

// watchedKinds are the watches of every manager, of every form, with selectors
// of every kind. The same ConfigMaps are watched in three forms.
func (c managersConfig) watchedKinds() []watchedKind {
	configMap := watchedKind{
		kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), gvr: configMaps.resource, transform: markTransformed,
		places: map[string]place{c.Web: {labels: "watched=yes"}, c.DB: {labels: "watched=yes"}},
	}
	pod := watchedKind{
		name: "pods", kind: corev1.SchemeGroupVersion.WithKind("Pod"), gvr: pods.resource, transform: stripManagedFields,
		places: map[string]place{c.Web: {fields: "spec.nodeName=node"}, c.DB: {labels: "watched=yes"}},
	}
	lease := watchedKind{
		name: "leases", kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), gvr: leases.resource, transform: stripManagedFields,
		places: map[string]place{c.Web: {}, c.DB: {}},
	}
	node := watchedKind{
		name: "nodes", kind: corev1.SchemeGroupVersion.WithKind("Node"), gvr: nodes.resource, transform: stripManagedFields,
		places: map[string]place{"": {labels: "owner=" + c.Web}},
	}
	pod.indexed = true
	watched := []watchedKind{
		configMap.typed("configmaps", &corev1.ConfigMap{}, &corev1.ConfigMapList{}),
		configMap.unstructured("configmaps-unstructured"),
		configMap.onlyMetadata("configmaps-metadata"),
		pod.typed("pods", &corev1.Pod{}, &corev1.PodList{}),
		lease.unstructured("leases"),
		node.onlyMetadata("nodes"),
	}
	for i := range watched {
		watched[i].indexed = watched[i].indexed || c.AllIndexed
	}
	return watched
}

func (w watchedKind) typed(name string, object client.Object, list client.ObjectList) watchedKind {
	w.name, w.indexed = name, true
	w.object = func() client.Object { return object.DeepCopyObject().(client.Object) }
	w.list = func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) }
	return w
}

func (w watchedKind) unstructured(name string) watchedKind {
	w.name = name
	w.object = func() client.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(w.kind)
		return u
	}
	w.list = func() client.ObjectList {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(w.listKind())
		return l
	}
	return w
}

func (w watchedKind) onlyMetadata(name string) watchedKind {
	w.name, w.metadata = name, true
	w.object = func() client.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: typeMeta(w.kind)}
	}
	w.list = func() client.ObjectList {
		return &metav1.PartialObjectMetadataList{TypeMeta: typeMeta(w.listKind())}
	}
	return w
}

func (w watchedKind) listKind() schema.GroupVersionKind {
	return w.kind.GroupVersion().WithKind(w.kind.Kind + "List")
}

func typeMeta(kind schema.GroupVersionKind) metav1.TypeMeta {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: name}
}

// cacheOptions say to controller-runtime what watchedKinds says to the tests.
func (c managersConfig) cacheOptions() ctrlcache.Options {
	return ctrlcache.Options{
		DefaultNamespaces: map[string]ctrlcache.Config{c.Web: {}, c.DB: {}},
		DefaultTransform:  stripManagedFields,
		ByObject: map[client.Object]ctrlcache.ByObject{
			&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{"watched": "yes"}), Transform: markTransformed},
			&corev1.Pod{}: {Namespaces: map[string]ctrlcache.Config{
				c.Web: {FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "node")},
				c.DB:  {LabelSelector: labels.SelectorFromSet(labels.Set{"watched": "yes"})},
			}},
			&corev1.Node{}: {Label: labels.SelectorFromSet(labels.Set{"owner": c.Web})},
		},
	}
}

func stripManagedFields(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	m.SetManagedFields(nil)
	return obj, nil
}

// markTransformed shows how often it has been applied to an object.
func markTransformed(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{"value": m.GetAnnotations()["value"]}
	annotations["transformed"] = m.GetAnnotations()["transformed"] + "x"
	m.SetAnnotations(annotations)
	return stripManagedFields(obj)
}

// valueOf is what objects are indexed by.
func valueOf(obj client.Object) []string { return []string{obj.GetAnnotations()["value"]} }

// runManagers runs managers as the environment says and returns an exit code.
func runManagers(encoded string) int {
	logToStderr()
	log.SetLogger(klog.Background())
	p := &managersProcess{}
	p.out.Encoder = json.NewEncoder(os.Stdout)
	err := json.Unmarshal([]byte(encoded), &p.config)
	if err == nil {
		err = p.run(context.Background(), os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// managersProcess is such a process, seen from inside.
type managersProcess struct {
	config   managersConfig
	managers []manager.Manager
	out      struct {
		sync.Mutex
		*json.Encoder
	}
	made struct {
		sync.Mutex
		informers []cache.SharedIndexInformer
	}
}

// run runs the managers until standard input is closed, which is also what the
// death of the parent does.
func (p *managersProcess) run(ctx context.Context, in io.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	//hygiene:allow bolt.Open: in a process of its own; the test checks the file
	db, err := bolt.Open(p.config.Path, bolt.Options{})
	if err != nil {
		return err
	}
	config := &rest.Config{
		Host: p.config.Host, BearerToken: p.config.Token, UserAgent: p.config.UserAgent, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.config.CA},
	}
	if !p.config.Unidentified {
		config = factory.Identify(config)
	}
	for range p.config.Managers {
		if err := p.add(ctx, config, db); err != nil {
			return err
		}
	}
	go p.answer(ctx, bufio.NewScanner(in), stop)
	return errors.Join(p.start(ctx), db.Close())
}

// start runs the managers, one after the other has synced.
func (p *managersProcess) start(ctx context.Context) error {
	errs := make(chan error, len(p.managers))
	for _, m := range p.managers {
		go func() { errs <- m.Start(ctx) }()
		m.GetCache().WaitForCacheSync(ctx)
	}
	var ended []error
	for range p.managers {
		ended = append(ended, <-errs)
	}
	return errors.Join(ended...)
}

// add makes a manager with its own NewInformerFunc.
func (p *managersProcess) add(ctx context.Context, config *rest.Config, db store.Store) error {
	policy := informer.Confirmed
	if p.config.Stale > 0 {
		policy = informer.Stale(p.config.Stale)
	}
	newInformer, err := factory.NewInformerFunc(db,
		factory.WithListBelow(-1), factory.WithTransformVersion("1"), factory.WithStartPolicy(policy),
		factory.WithResidency(p.config.Residency, leastBudget(p.config.Residency)))
	if err != nil {
		return err
	}
	options := p.config.cacheOptions()
	options.NewInformer = func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		inf := newInformer(lw, example, resync, indexers)
		p.made.Lock()
		defer p.made.Unlock()
		p.made.informers = append(p.made.informers, inf)
		return inf
	}
	m, err := manager.New(config, manager.Options{
		Cache: options, MapperProvider: restmapper.Provider(db),
		Metrics: server.Options{BindAddress: "0"}, Logger: klog.Background(),
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(true)},
	})
	if err != nil {
		return err
	}
	p.managers = append(p.managers, m)
	for _, w := range p.config.watchedKinds() {
		if err := p.addController(ctx, m, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (p *managersProcess) addController(ctx context.Context, m manager.Manager, w watchedKind) error {
	if w.indexed {
		if err := m.GetFieldIndexer().IndexField(ctx, w.object(), "value", valueOf); err != nil {
			return err
		}
	}
	var options []builder.ForOption
	if w.metadata {
		options = append(options, builder.OnlyMetadata)
	}
	name := fmt.Sprintf("%s/%d", w.name, len(p.managers)-1)
	return builder.ControllerManagedBy(m).Named(name).For(w.object(), options...).Complete(
		reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			obj := w.object()
			err := m.GetCache().Get(ctx, r.NamespacedName, obj)
			if client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, err
			}
			found := &reconciled{Controller: name, Key: cache.ObjectName(r.NamespacedName).String()}
			if !apierrors.IsNotFound(err) {
				found.RV = obj.GetResourceVersion()
			}
			p.say(managersMessage{Reconciled: found})
			return reconcile.Result{}, nil
		}))
}

// answer answers each line with a snapshot.
func (p *managersProcess) answer(ctx context.Context, lines *bufio.Scanner, stop func()) {
	defer stop()
	for lines.Scan() {
		if lines.Text() == commandIndex {
			if err := p.indexAll(ctx); err != nil {
				klog.ErrorS(err, "Indices were not added")
			}
		}
		s, err := p.snapshot(ctx)
		if err != nil {
			klog.ErrorS(err, "Caches were not read")
		}
		p.say(managersMessage{Snapshot: s})
	}
}

// indexAll indexes what is not indexed yet.
func (p *managersProcess) indexAll(ctx context.Context) error {
	for _, w := range p.config.watchedKinds() {
		if w.indexed {
			continue
		}
		for _, m := range p.managers {
			if err := m.GetFieldIndexer().IndexField(ctx, w.object(), "value", valueOf); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	p.config.AllIndexed = true
	return nil
}

func (p *managersProcess) say(m managersMessage) {
	p.out.Lock()
	defer p.out.Unlock()
	if err := p.out.Encode(m); err != nil {
		klog.ErrorS(err, "Message was not written")
	}
}

func (p *managersProcess) snapshot(ctx context.Context) (*managersSnapshot, error) {
	s := &managersSnapshot{}
	p.made.Lock()
	for _, inf := range p.made.informers {
		s.Informers = append(s.Informers, statusOf(inf))
	}
	p.made.Unlock()
	synced := len(s.Informers) > 0
	for _, inf := range s.Informers {
		synced = synced && inf.Synced
	}
	for _, m := range p.managers {
		contents := cacheContents{Synced: synced}
		if synced { // A read waits for it.
			if err := contents.read(ctx, m.GetCache(), p.config); err != nil {
				return s, err
			}
		}
		s.Caches = append(s.Caches, contents)
	}
	return s, nil
}

// read reads everything that is watched.
func (c *cacheContents) read(ctx context.Context, reader client.Reader, config managersConfig) error {
	c.Objects, c.ByValue = map[string]map[string]map[string]state{}, map[string]map[string][]string{}
	for _, w := range config.watchedKinds() {
		c.Objects[w.name] = map[string]map[string]state{}
		for namespace := range w.places {
			list := w.list()
			if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			states, err := statesIn(list)
			if err != nil {
				return err
			}
			c.Objects[w.name][namespace] = states
		}
		if !w.indexed {
			continue
		}
		c.ByValue[w.name] = map[string][]string{}
		for _, value := range []string{"", "changed"} {
			list := w.list()
			if err := reader.List(ctx, list, client.MatchingFields{"value": value}); err != nil {
				return err
			}
			keys, err := keysIn(list)
			if err != nil {
				return err
			}
			c.ByValue[w.name][value] = keys
		}
	}
	return nil
}
