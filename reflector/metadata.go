package reflector

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetadataLister lists the metadata of a collection, with the namespace and the
// selectors of its ListerWatcher. What client-go's metadata.Interface has for a
// resource is one.
type MetadataLister interface {
	// List lists with the limit, version or token of the options.
	List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
}
