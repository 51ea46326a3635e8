package apitest

import (
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// TestServer_EveryResource reads one object of each resource in JSON and, by
// its metadata, in protobuf.
func TestServer_EveryResource(t *testing.T) {
	srv := newServer(t, Options{CustomResources: []CustomResource{Widgets}})
	dyn, err := dynamic.NewForConfig(srv.RESTConfig())
	check(t, err)
	config := srv.RESTConfig()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	partial, err := metadata.NewForConfig(config)
	check(t, err)
	all := srv.storage.resources()
	if len(all) < 80 {
		t.Errorf("only %d resources are served", len(all))
	}
	for _, res := range all {
		obj, err := res.newObject()
		check(t, err)
		accessor, err := meta.Accessor(obj)
		check(t, err)
		accessor.SetName("a")
		namespace := ""
		if res.namespaced {
			namespace = "ns"
		}
		accessor.SetNamespace(namespace)
		check(t, srv.Create(obj))

		u, err := dyn.Resource(res.gvr).Namespace(namespace).Get(t.Context(), "a", metav1.GetOptions{})
		check(t, err)
		if u.GroupVersionKind() != res.gvk || u.GetUID() != accessor.GetUID() || u.GetUID() == "" {
			t.Errorf("%v: got %v with UID %s", res.gvr, u.GroupVersionKind(), u.GetUID())
		}
		list, err := partial.Resource(res.gvr).List(t.Context(), metav1.ListOptions{})
		check(t, err)
		if !slices.ContainsFunc(list.Items, func(m metav1.PartialObjectMetadata) bool { return m.UID == accessor.GetUID() }) {
			t.Errorf("%v: metadata is %v", res.gvr, list.Items)
		}
	}
}

func TestServer_ServedScopes(t *testing.T) {
	srv := newServer(t, Options{})
	for resource, namespaced := range map[string]bool{
		"pods": true, "configmaps": true, "secrets": true, "services": true, "events": true, "nodes": false, "namespaces": false,
	} {
		table, ok := srv.storage.table(corev1.SchemeGroupVersion.WithResource(resource))
		if !ok || table.res.namespaced != namespaced {
			t.Errorf("%s: served %v, want namespaced %v", resource, ok, namespaced)
		}
	}
}

func TestServer_Direct(t *testing.T) {
	srv := newServer(t, Options{CustomResources: []CustomResource{Widgets}})
	widget, pod := Widget("ns", "w", 1), Pod("ns", "p", 1)
	check(t, srv.Create(widget, pod))
	if widget.GetUID() == "" || pod.ResourceVersion != srv.ResourceVersion() {
		t.Errorf("UID %q, version %q of %s: want them set", widget.GetUID(), pod.ResourceVersion, srv.ResourceVersion())
	}
	stale := pod.DeepCopy()
	pod.Labels["x"] = "y"
	check(t, srv.Update(pod))
	stale.Labels["x"] = "z"
	if err := srv.Update(stale); err == nil {
		t.Error("an update of a stale version was accepted")
	}
	got, err := srv.Get(podsGVR, "ns", "p")
	check(t, err)
	if p := got.(*corev1.Pod); p.Labels["x"] != "y" || p.UID != pod.UID {
		t.Errorf("stored %v", p.ObjectMeta)
	}
	objs, _, err := srv.List(Widgets.GVR, "ns")
	check(t, err)
	if len(objs) != 1 || objs[0].(*unstructured.Unstructured).GetName() != "w" {
		t.Errorf("stored %v", objs)
	}
	check(t, srv.Delete(pod))
	if err := srv.Delete(pod); err == nil {
		t.Error("the pod was deleted twice")
	}
	if err := srv.Create(&metav1.Status{}); err == nil {
		t.Error("an object without a resource was accepted")
	}
}

func TestServer_NoWatchList_ClientFallsBack(t *testing.T) {
	srv := newServer(t, Options{NoWatchList: true})
	fill(t, srv, 3)
	factory := informers.NewSharedInformerFactory(client(t, srv), 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(t.Context().Done())
	if _, err := lister.ConfigMaps("ns").Get("c2"); err != nil {
		t.Error(err)
	}
	if got := srv.Counts(); got.Lists != 1 || got.FullLists != 1 {
		t.Errorf("counted %+v, want one LIST", got)
	}
}

func TestPod_SizeAndDeterminism(t *testing.T) {
	pod := Pod("ns", PodName(7), 7)
	if size := pod.Size(); size < 4_500 || size > 5_500 {
		t.Errorf("a pod is %d bytes, want about 5,000", size)
	}
	if !reflect.DeepEqual(pod, Pod("ns", PodName(7), 7)) {
		t.Error("equal arguments give different pods")
	}
	names := map[string]bool{}
	for i := range 10_000 {
		names[PodName(i)] = true
	}
	if len(names) != 10_000 {
		t.Errorf("%d names of 10,000 are different", len(names))
	}
}

// BenchmarkServer_List lists 10,000 pods in protobuf.
func BenchmarkServer_List(b *testing.B) {
	srv, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	const n = 10_000
	for i := range n {
		if err := srv.Create(Pod("ns", PodName(i), i)); err != nil {
			b.Fatal(err)
		}
	}
	config := srv.RESTConfig()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	raw, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		benchmarkRead(b, raw, srv.URL()+"/api/v1/pods")
	}
	b.ReportMetric(float64(srv.Counts().Bytes)/float64(b.N)/n, "bytes/pod")
}

func benchmarkRead(b *testing.B, c *http.Client, url string) {
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	reply, err := c.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkServer_Watch counts events of 5 KB from a write to a client that
// does not decode them.
func BenchmarkServer_Watch(b *testing.B) {
	srv, err := New(Options{Window: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	pod := Pod("ns", "p", 1)
	if err := srv.Create(pod); err != nil {
		b.Fatal(err)
	}
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL()+"/api/v1/pods?watch=1&resourceVersion="+srv.ResourceVersion(), nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	go func() {
		for i := range b.N {
			pod.Annotations["i"] = strconv.Itoa(i)
			if err := srv.Update(pod); err != nil {
				b.Error(err)
			}
		}
	}()
	reader := protobuf.LengthDelimitedFramer.NewFrameReader(reply.Body)
	buffer := make([]byte, 64<<10)
	b.ResetTimer()
	for range b.N {
		if _, err := reader.Read(buffer); err != nil {
			b.Fatal(err)
		}
	}
}
