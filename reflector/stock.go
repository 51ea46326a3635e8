package reflector

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// stock is the reflector of client-go that watch error handlers are given. It
// answers what they can ask of it, by which they tell informers apart, and reads
// nothing from the server.
type stock struct {
	*cache.Reflector
	source emptyList
}

func newStock(o Options) *stock {
	s := &stock{}
	s.Reflector = cache.NewReflectorWithOptions(&s.source, o.Expected, &cache.FakeCustomStore{},
		cache.ReflectorOptions{Name: o.Name, TypeDescription: o.TypeDescription})
	return s
}

// at returns the reflector with rv as its LastSyncResourceVersion, which only a
// list sets.
func (s *stock) at(rv string) *cache.Reflector {
	if s.LastSyncResourceVersion() != rv {
		s.source.rv = rv
		silent := klog.NewContext(context.Background(), klog.Logger{})
		_ = s.ListAndWatchWithContext(silent) // ends when it is about to watch
	}
	return s.Reflector
}

// emptyList is a server that has nothing, at one version.
type emptyList struct{ rv string }

var errNothingToWatch = errors.New("nothing to watch")

func (l *emptyList) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: l.rv}}, nil
}

func (*emptyList) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errNothingToWatch
}
