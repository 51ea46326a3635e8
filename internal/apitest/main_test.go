package apitest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

var (
	podsGVR       = corev1.SchemeGroupVersion.WithResource("pods")
	configMapsGVR = corev1.SchemeGroupVersion.WithResource("configmaps")
)

func newServer(t *testing.T, opts Options) *Server {
	t.Helper()
	srv, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// client is a new JSON client. Its idle connections end with the server.
func client(t *testing.T, srv *Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(srv.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// fill creates n ConfigMaps named c0, c1, ...
func fill(t *testing.T, srv *Server, n int) {
	t.Helper()
	for i := range n {
		check(t, srv.Create(configMap(fmt.Sprint("c", i))))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next returns the next event, or an error when the stream ends.
func next(w watch.Interface) (watch.Event, error) {
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return e, errEnded
		}
		return e, nil
	case <-time.After(patience):
		return watch.Event{}, errors.New("no event came")
	}
}

var errEnded = errors.New("the stream ended")

func wantEvent(t *testing.T, w watch.Interface, typ watch.EventType, name string) metav1.Object {
	t.Helper()
	e, err := next(w)
	check(t, err)
	obj, ok := e.Object.(metav1.Object)
	if !ok || e.Type != typ || obj.GetName() != name {
		t.Fatalf("got %s %v, want %s %s", e.Type, e.Object, typ, name)
	}
	return obj
}

func wantEnd(t *testing.T, w watch.Interface) {
	t.Helper()
	if e, err := next(w); !errors.Is(err, errEnded) {
		t.Fatalf("got %v, %v, want the stream to end", e, err)
	}
}

func watchConfigMaps(t *testing.T, srv *Server, opts metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := client(t, srv).CoreV1().ConfigMaps("").Watch(t.Context(), opts)
	check(t, err)
	t.Cleanup(w.Stop)
	return w
}

func listConfigMaps(ctx context.Context, t *testing.T, srv *Server, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	t.Helper()
	return client(t, srv).CoreV1().ConfigMaps("").List(ctx, opts)
}
