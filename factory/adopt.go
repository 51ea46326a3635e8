package factory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// Generated is the part of a generated shared informer factory by which Adopt
// registers informers. F is the NewInformerFunc of its package internalinterfaces.
type Generated[F any] interface {
	// InformerFor returns the informer for the type of obj, which newFunc makes if
	// there is none yet.
	InformerFor(obj runtime.Object, newFunc F) cache.SharedIndexInformer
}

// Adopt registers a persistent informer with target for the type of each object,
// so that target's accessors and listers lead to it. Target may be any factory
// that client-go's informer-gen has made: that of client-go, or one for the types
// of somebody else. Both type parameters follow from target.
//
//	f := externalversions.NewSharedInformerFactory(client, resync)
//	err := factory.Adopt(f, db, []runtime.Object{&v1.Widget{}}, factory.WithScheme(versionedscheme.Scheme))
//	...
//	widgets := f.Example().V1().Widgets()
//	f.Start(stop)
//
// Everything else remains target's: it starts the informers and waits for them, and
// its client, resync periods, transform and informer name apply to them. Two
// things Adopt cannot learn from target, and must be told again: the namespace
// (WithNamespace) and the tweak of the list options (WithTweakListOptions). If
// target has a transform, give its version to WithTransformVersion.
//
// The types are those of WithScheme, or of client-go's scheme without it. Target's
// Start also runs what was adopted and is not used otherwise, so adopt what the
// program needs. Close db after target's Shutdown.
//
// Errors: ErrInvalidOptions, and ErrUnknownResource for a type that target's
// clientset cannot list; nothing has been registered then. ErrAlreadyRegistered
// names the types that target had informers for; all others have been adopted.
// Call Adopt before anything asks target for an informer.
func Adopt[C any, F ~func(C, time.Duration) cache.SharedIndexInformer](
	target Generated[F], db store.Store, objs []runtime.Object, opts ...Option,
) error {
	if isnil.Value(target) {
		return invalid("the factory to adopt informers is nil")
	}
	a, err := newAdoption(target, reflect.TypeFor[C](), db, opts)
	if err != nil {
		return err
	}
	a.owner = callSite()
	found, err := a.resolve(objs)
	if err != nil {
		return err
	}
	var registered []error
	for _, r := range found {
		adopted := false
		target.InformerFor(newObject(r.object), func(client C, resync time.Duration) cache.SharedIndexInformer {
			adopted = true
			return a.inform(client, r, resync)
		})
		if !adopted {
			registered = append(registered, fmt.Errorf("%w: %v", ErrAlreadyRegistered, r.object))
		}
	}
	return errors.Join(registered...)
}

// adoption is one call of Adopt, without its type parameters.
type adoption struct {
	*builder
	typer runtime.ObjectTyper
	table resourceTable
}

// newAdoption validates the options. The server is known with the client, which
// only the target has.
func newAdoption(target any, clientset reflect.Type, db store.Store, opts []Option) (*adoption, error) {
	if clientset.Kind() != reflect.Interface {
		return nil, invalid("the clientset of the factory is a %v, not the interface that generated code uses", clientset)
	}
	b, err := newBuilder(db, nil, opts)
	if err != nil {
		return nil, err
	}
	if err := b.config.refuse("Adopt", adoptRefuses); err != nil {
		return nil, err
	}
	if t, ok := target.(interface{ InformerName() *cache.InformerName }); ok {
		b.config.informerName = t.InformerName()
	}
	if err := b.config.metricsNeedName(); err != nil {
		return nil, err
	}
	a := &adoption{builder: b, typer: scheme.Scheme}
	if b.config.scheme != nil {
		a.typer = b.config.scheme
	}
	a.table = newResourceTable(clientset, a.typer)
	if err := a.config.validateTypes(a.table); err != nil {
		return nil, err
	}
	return a, nil
}

// adoptRefuses are options that are the target's to say.
var adoptRefuses = map[string]string{
	"WithResync":             "the factory that adopts says it",
	"WithCustomResyncConfig": "the factory that adopts says it",
	"WithInformerName":       "the factory that adopts says it",
	"WithTransform":          "the factory that adopts sets it; use WithTransformVersion",
}

// resolve returns the resources that objs are of, or the first error.
func (a *adoption) resolve(objs []runtime.Object) ([]apiResource, error) {
	if len(objs) == 0 {
		return nil, invalid("there are no objects, whose types say what to adopt")
	}
	found := make([]apiResource, 0, len(objs))
	for _, obj := range objs {
		r, err := a.resourceOf(obj)
		if err != nil {
			return nil, err
		}
		if slices.Contains(found, r) {
			return nil, invalid("the objects have type %v twice", r.object)
		}
		found = append(found, r)
	}
	return found, nil
}

func (a *adoption) resourceOf(obj runtime.Object) (apiResource, error) {
	if isnil.Value(obj) {
		return apiResource{}, invalid("an object is nil")
	}
	if _, _, err := a.typer.ObjectKinds(obj); err != nil {
		return apiResource{}, invalid("WithScheme: %w", err)
	}
	return a.table.resourceFor(reflect.TypeOf(obj))
}

// inform makes the informer of a resource with what the target says.
func (a *adoption) inform(client any, r apiResource, resync time.Duration) cache.SharedIndexInformer {
	if a.server == nil {
		a.ask(serverBehind(client))
	}
	a.config.customResync[r.object] = resync
	t := typedTarget(r, a.config.namespace)
	c := caller{clientset: client, resource: r, namespace: a.config.namespace, tweak: a.config.tweak}
	t.get = c.get
	return a.build(t, c.listerWatcher())
}

// serverBehind asks with a clientset of any kind, which may lack the core group
// but has a client for discovery. As nobody tells when the informers start, each
// asks for its schema, unless another is just asking.
func serverBehind(client any) *server {
	s := newServer(
		func(ctx context.Context, name string, _ metav1.GetOptions) (metav1.Object, error) {
			return namespaceOf(ctx, discoveryOf(client), name)
		},
		func() discovery.OpenAPIV3SchemaInterface { return discoveryOf(client) },
	)
	if c, ok := client.(kubernetes.Interface); ok {
		s = serverOf(c)
	}
	s.changes = true
	return s
}

// discoveryOf returns the discovery client of a generated clientset, or nil.
// Clientsets of older generators return the second type.
func discoveryOf(client any) discovery.DiscoveryInterface {
	switch c := client.(type) {
	case interface {
		Discovery() discovery.DiscoveryInterfaces
	}:
		return c.Discovery()
	case interface {
		Discovery() discovery.DiscoveryInterface
	}:
		return c.Discovery()
	}
	return nil
}

// namespaceOf gets the metadata of a namespace through the connection of a
// discovery client. What has none, such as a fake, is like a server that does not
// tell.
func namespaceOf(ctx context.Context, d discovery.DiscoveryInterface, name string) (metav1.Object, error) {
	if isnil.Value(d) || isnil.Value(d.RESTClient()) {
		return nil, apierrors.NewNotFound(namespaces.GroupResource(), name)
	}
	body, err := d.RESTClient().Get().AbsPath("/api/v1/namespaces", name).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var ns metav1.PartialObjectMetadata
	return &ns, json.Unmarshal(body, &ns)
}
