package factory

import (
	"context"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// WithMetadataClient gives informers a client for the metadata of what they list, of the
// same API server and with the same permissions as theirs. Audits need it, and informers
// of large objects use it to list only what has changed (informer.Options.Get), except
// those of NewInformerFunc. With NewMetadata its own client is the default.
func WithMetadataClient(client metadata.Interface) Option {
	return option("WithMetadataClient", func(c *config) { c.metadata = client })
}

// WithAudit compares all informers of the factory with the server from time to time, and
// repairs what differs; see package audit. Its Period must be set. It needs
// WithMetadataClient. An informer whose list options are tweaked beyond selectors, limit
// and timeout, or that the caller's function makes, is not audited: Status.Audit is nil
// then. The default is no audit.
func WithAudit(a informer.Audit) Option {
	return option("WithAudit", func(c *config) { c.audit = a })
}

// validateAudit reports the first of these options that cannot be meant.
func (c *config) validateAudit() error {
	switch {
	case c.has("WithMetadataClient") && isnil.Value(c.metadata):
		return invalid("WithMetadataClient: the client is nil")
	case !c.has("WithAudit"):
		return nil
	case c.audit.Period <= 0 || c.audit.Rate < 0:
		return invalid("WithAudit: Period %s, Rate %d: the period must be positive, and the rate not negative", c.audit.Period, c.audit.Rate)
	case c.metadata == nil:
		return invalid("WithAudit needs WithMetadataClient, which lists what it compares")
	}
	return nil
}

// auditing gives an informer what it takes to list metadata and to be audited.
func (b *builder) auditing(t target, o *informer.Options) {
	if b.config.metadata == nil || b.unpersistable != nil {
		return
	}
	o.Metadata = metadataOf{client: b.config.metadata, gvr: t.gvr, namespace: t.namespace, tweak: b.config.tweak}
	o.Audit = b.config.audit
}

// metadataOf lists the metadata of a resource.
type metadataOf struct {
	client    metadata.Interface
	gvr       schema.GroupVersionResource
	namespace string
	tweak     internalinterfaces.TweakListOptionsFunc
}

// List implements reflector.MetadataLister.
func (m metadataOf) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	applyTweak(m.tweak, &o)
	return m.client.Resource(m.gvr).Namespace(m.namespace).List(ctx, o)
}

// discoveredMetadata lists the metadata of what an informer of NewInformerFunc lists,
// which it finds out at the first time.
type discoveredMetadata struct {
	client metadata.Interface
	lw     cache.ListerWatcher
	id     atomic.Pointer[store.Identity]
}

// List implements reflector.MetadataLister. Errors may wrap ErrNotIdentified.
func (m *discoveredMetadata) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	id := m.id.Load()
	if id == nil {
		found, _, err := inquire(ctx, m.lw)
		if err != nil {
			return nil, err
		}
		id = &found
		m.id.Store(id)
	}
	return metadataOf{
		client:    m.client,
		gvr:       schema.GroupVersionResource{Group: id.Group, Version: id.Version, Resource: id.Resource},
		namespace: id.Namespace,
		tweak: func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = id.LabelSelector, id.FieldSelector
		},
	}.List(ctx, o)
}
