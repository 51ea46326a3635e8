package factory

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// MetadataFactory is a metadatainformer.SharedInformerFactory whose informers keep
// their objects, *metav1.PartialObjectMetadata, in a store. The package comment
// says what callers may rely on.
type MetadataFactory struct{ *resources }

var _ metadatainformer.SharedInformerFactory = (*MetadataFactory)(nil)

// NewMetadata returns a factory for informers of the metadata of any resource, or
// an error that wraps ErrInvalidOptions and names the option that cannot be meant.
//
// Metadata of Secrets is not persisted without WithPlaintextSecrets: kubectl apply
// writes all of a Secret into an annotation. In all else it works as NewDynamic does.
func NewMetadata(client metadata.Interface, db store.Store, opts ...Option) (*MetadataFactory, error) {
	if isnil.Value(client) {
		return nil, invalid("the metadata client is nil")
	}
	namespace := func(ctx context.Context, name string, o metav1.GetOptions) (metav1.Object, error) {
		return client.Resource(namespaces).Get(ctx, name, o)
	}
	b, err := newResourceBuilder("NewMetadata", db, newServer(namespace, noDiscovery), append([]Option{WithMetadataClient(client)}, opts...))
	if err != nil {
		return nil, err
	}
	return &MetadataFactory{&resources{builder: b, form: form{
		name:    store.FormMetadata,
		example: func() runtime.Object { return &metav1.PartialObjectMetadata{} },
		listerWatcher: func(gvr schema.GroupVersionResource) cache.ListerWatcher {
			return listerWatcherOf(client, func() resourceClient[*metav1.PartialObjectMetadataList] {
				return client.Resource(gvr).Namespace(b.config.namespace)
			}, b.config.tweak)
		},
		lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return metadatalister.NewRuntimeObjectShim(metadatalister.New(indexer, gvr))
		},
	}}}, nil
}
