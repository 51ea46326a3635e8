package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

const (
	// largeObjects is how many objects of largeObjectSize bytes newSparseWorld creates.
	largeObjects    = 400
	largeObjectSize = 50_000
)

// TestSparse_AfterAnAPIServerRestart_ReadsWhatHasChanged lists large objects of a server that
// has forgotten what was stored: with a client for their metadata, and without. Both must come
// to the same; what it costs is measured in bytes on the wire and, for the log, in time.
func TestSparse_AfterAnAPIServerRestart_ReadsWhatHasChanged(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		w := newSparseWorld(t, r)
		w.run(false)
		var received [2]int64
		for n, sparsely := range []bool{false, true} {
			w.update("changed", "object-000", "object-001", fmt.Sprintf("object-%03d", n+2))
			w.delete(fmt.Sprintf("object-%03d", 100+n))
			w.create("", fmt.Sprintf("new-%d", n))
			forgetHistory(t)
			status, size, took := w.run(sparsely)
			received[n] = size
			t.Logf("sparsely %t: %d bytes received, %s to HasSynced, listed because %q",
				sparsely, size, took.Round(time.Millisecond), status.ListReason)
			sparse := 0
			if sparsely {
				sparse = 1
			}
			if status.Lists != 1 || status.SparseLists != sparse {
				t.Errorf("status %+v, want one list, of which %d sparse", status, sparse)
			}
		}
		if received[1]*10 > received[0] {
			t.Errorf("%d bytes were received instead of %d, want a tenth at most", received[1], received[0])
		}
	})
}

// sparseWorld is a namespace of large objects, and a file.
type sparseWorld struct {
	*subject
	path     string
	received atomic.Int64
}

func newSparseWorld(t *testing.T, r informer.Residency) *sparseWorld {
	t.Helper()
	w := &sparseWorld{subject: newSubject(t, configMaps).residing(r)}
	w.path = filepath.Join(t.TempDir(), "informers.db")
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range names("object", largeObjects) {
		// As a release of Helm: what servers compress on the wire is compressed already.
		content := make([]byte, largeObjectSize)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"release": content}}
		if _, err := w.writer.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// run starts an informer, waits until it has synced, compares it with the server, and stops
// it. It returns what the informer has received until it had synced, and how long that took.
func (w *sparseWorld) run(sparsely bool) (status informer.Status, received int64, took time.Duration) {
	t := w.t
	t.Helper()
	config := plane.API.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	config.Dial = w.dial
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	options := []factory.Option{
		factory.WithNamespace(w.namespace), factory.WithListBelow(-1),
		factory.WithResidency(w.config.Residency, leastBudget(w.config.Residency)),
	}
	if sparsely {
		partial, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, factory.WithMetadataClient(partial))
	}
	db := bolttest.Open(t, w.path, bolt.Options{})
	f, err := factory.New(client, db, options...)
	if err != nil {
		t.Fatal(err)
	}
	inf := f.Core().V1().ConfigMaps().Informer()
	ctx, stop := context.WithCancel(patiently(t))
	w.received.Store(0)
	start := time.Now()
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	received, took = w.received.Load(), time.Since(start)
	status, _ = informer.StatusOf(inf)
	w.wantCurrent(f.Core().V1().ConfigMaps().Lister().ConfigMaps(w.namespace))
	stop()
	f.Shutdown()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return status, received, took
}

// wantCurrent fails the test unless a lister has exactly what the server has.
func (w *sparseWorld) wantCurrent(lister corelisters.ConfigMapNamespaceLister) {
	w.t.Helper()
	fresh, err := w.writer.CoreV1().ConfigMaps(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	has, err := lister.List(labels.Everything())
	if err != nil || len(has) != len(fresh.Items) {
		w.t.Errorf("the informer has %d objects, %v; the server has %d", len(has), err, len(fresh.Items))
	}
	for i := range fresh.Items {
		want := &fresh.Items[i]
		got, err := lister.Get(want.Name)
		if err != nil || got.UID != want.UID || got.ResourceVersion != want.ResourceVersion ||
			!bytes.Equal(got.BinaryData["release"], want.BinaryData["release"]) {
			w.t.Errorf("%s: the informer does not have what the server has (%v)", want.Name, err)
		}
	}
}

// dial counts what is received.
func (w *sparseWorld) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, &w.received}, nil
}

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}
