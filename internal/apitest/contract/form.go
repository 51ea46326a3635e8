package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

var formTests = []test{
	{"Form_ProtobufAndJSON_SameObjects", testSameObjects},
	{"Form_Dynamic_KindsAndContent", testDynamic},
	{"Form_JSON_KindsOfItems", testItemKinds},
	{"Form_Metadata_ListWatchGet", testMetadata},
	{"Form_Metadata_Bookmark", testMetadataBookmark},
	{"Form_Error_IsStatus", testErrorForms},
	{"Form_NotAcceptable", testNotAcceptable},
	{"Form_Discovery", testDiscovery},
	{"Form_Informer", testInformer},
}

var (
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
	podsResource       = corev1.SchemeGroupVersion.WithResource("pods")
)

func testSameObjects(t *testing.T, s *suite) {
	start := must(s.typed.CoreV1().Pods(s.ns).List(s.ctx, metav1.ListOptions{Limit: 1}))(t).ResourceVersion
	s.pod(t, "a", "node-1")
	s.setPhase(t, s.pod(t, "b", ""), corev1.PodRunning)

	protobuf := must(s.typed.CoreV1().Pods(s.ns).List(s.ctx, metav1.ListOptions{}))(t)
	inJSONList := must(s.json.CoreV1().Pods(s.ns).List(s.ctx, metav1.ListOptions{}))(t)
	if len(protobuf.Items) != 2 || !apiequality.Semantic.DeepEqual(protobuf.Items, inJSONList.Items) {
		t.Errorf("lists differ: protobuf %v, JSON %v", protobuf.Items, inJSONList.Items)
	}
	opts := metav1.ListOptions{ResourceVersion: start}
	inProtobuf := newStream(t, must(s.typed.CoreV1().Pods(s.ns).Watch(s.ctx, opts))(t))
	inJSON := newStream(t, must(s.json.CoreV1().Pods(s.ns).Watch(s.ctx, opts))(t))
	for range 3 {
		p, j := withoutKind(inProtobuf.next()), withoutKind(inJSON.next())
		if p.Type != j.Type || !apiequality.Semantic.DeepEqual(p.Object, j.Object) {
			t.Errorf("events differ: protobuf %v, JSON %v", p, j)
		}
	}
}

// withoutKind removes kind and apiVersion, which clients may or may not leave in
// typed objects.
func withoutKind(e watch.Event) watch.Event {
	e.Object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return e
}

func testDynamic(t *testing.T, s *suite) {
	cm := s.put(t, "a", nil)
	client := s.dynamic.Resource(configMapsResource).Namespace(s.ns)
	list := must(client.List(s.ctx, metav1.ListOptions{LabelSelector: labelSuite}))(t)
	if len(list.Items) != 1 || list.GetKind() != "ConfigMapList" || list.GetAPIVersion() != "v1" {
		t.Fatalf("got %s %s of %d items", list.GetAPIVersion(), list.GetKind(), len(list.Items))
	}
	checkUnstructured(t, &list.Items[0], cm)
	st := newStream(t, must(client.Watch(s.ctx, metav1.ListOptions{LabelSelector: labelSuite}))(t))
	checkUnstructured(t, st.next().Object.(*unstructured.Unstructured), cm)
	checkUnstructured(t, must(client.Get(s.ctx, "a", metav1.GetOptions{}))(t), cm)
}

func checkUnstructured(t *testing.T, u *unstructured.Unstructured, want *corev1.ConfigMap) {
	t.Helper()
	if u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" {
		t.Errorf("kind is %s %s", u.GetAPIVersion(), u.GetKind())
	}
	data, _, err := unstructured.NestedString(u.Object, "data", "key")
	if err != nil || data != want.Data["key"] || u.GetUID() != want.UID || u.GetResourceVersion() != want.ResourceVersion {
		t.Errorf("got %v, want %v", u.Object, want)
	}
}

// testItemKinds looks at the JSON itself, because clients fill in the kinds.
func testItemKinds(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	typed, partial := "application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for accept, want := range map[string]string{
		typed:   "v1 ConfigMapList of  ",
		partial: "meta.k8s.io/v1 PartialObjectMetadataList of meta.k8s.io/v1 PartialObjectMetadata",
	} {
		if got := s.kinds(t, "/api/v1/namespaces/"+s.ns+"/configmaps?labelSelector="+labelSuite, accept); got != want {
			t.Errorf("%s: got %s, want %s", accept, got, want)
		}
	}
}

// kinds reads a list of one object in JSON and returns what it and its item say
// they are.
func (s *suite) kinds(t *testing.T, uri, accept string) string {
	t.Helper()
	body := must(s.json.CoreV1().RESTClient().Get().RequestURI(uri).SetHeader("Accept", accept).DoRaw(s.ctx))(t)
	var list struct {
		metav1.TypeMeta
		Items []metav1.TypeMeta
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("got %d items, %v in %s", len(list.Items), err, body)
	}
	item := list.Items[0]
	return fmt.Sprintf("%s %s of %s %s", list.APIVersion, list.Kind, item.APIVersion, item.Kind)
}

// eachMetadata runs check with the metadata client in both encodings.
func (s *suite) eachMetadata(t *testing.T, check func(t *testing.T, client metadata.Interface)) {
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) { check(t, s.metadata(t, contentType)) })
	}
}

func testMetadata(t *testing.T, s *suite) {
	cm := s.put(t, "a", map[string]string{"x": "y"})
	s.eachMetadata(t, func(t *testing.T, all metadata.Interface) {
		client := all.Resource(configMapsResource).Namespace(s.ns)
		list := must(client.List(s.ctx, metav1.ListOptions{LabelSelector: labelSuite}))(t)
		if len(list.Items) != 1 || list.ResourceVersion == "" {
			t.Fatalf("got %d items at %q", len(list.Items), list.ResourceVersion)
		}
		checkMetadata(t, &list.Items[0], cm)
		checkMetadata(t, must(client.Get(s.ctx, "a", metav1.GetOptions{}))(t), cm)
		st := newStream(t, must(client.Watch(s.ctx, metav1.ListOptions{LabelSelector: labelSuite}))(t))
		checkMetadata(t, st.next().Object.(*metav1.PartialObjectMetadata), cm)
	})
}

func checkMetadata(t *testing.T, got *metav1.PartialObjectMetadata, want *corev1.ConfigMap) {
	t.Helper()
	if !apiequality.Semantic.DeepEqual(got.ObjectMeta, want.ObjectMeta) {
		t.Errorf("got %v, want %v", got.ObjectMeta, want.ObjectMeta)
	}
}

func testMetadataBookmark(t *testing.T, s *suite) {
	s.eachMetadata(t, func(t *testing.T, all metadata.Interface) {
		client := all.Resource(configMapsResource).Namespace(s.ns)
		persisted := must(client.List(s.ctx, metav1.ListOptions{Limit: 1}))(t).ResourceVersion
		s.touchOther(t)
		server := must(client.List(s.ctx, metav1.ListOptions{Limit: 1}))(t).ResourceVersion
		st := newStream(t, must(client.Watch(s.ctx, short(persisted)))(t))
		wantBookmarks(t, st, server)
	})
}

func testErrorForms(t *testing.T, s *suite) {
	for name, err := range map[string]error{
		"protobuf": get(s.typed.CoreV1().ConfigMaps(s.ns).Get(s.ctx, "absent", metav1.GetOptions{})),
		"JSON":     get(s.json.CoreV1().ConfigMaps(s.ns).Get(s.ctx, "absent", metav1.GetOptions{})),
		"dynamic":  get(s.dynamic.Resource(configMapsResource).Namespace(s.ns).Get(s.ctx, "absent", metav1.GetOptions{})),
		"metadata": get(s.metadata(t, "").Resource(configMapsResource).Namespace(s.ns).Get(s.ctx, "absent", metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want NotFound", name, err)
		} else if want := `configmaps "absent" not found`; err.Error() != want {
			t.Errorf("%s: message is %q, want %q", name, err, want)
		}
	}
	unknown := corev1.SchemeGroupVersion.WithResource("unknowns")
	if _, err := s.dynamic.Resource(unknown).List(s.ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("unknown resource: got %v, want NotFound", err)
	}
}

// get drops the result of a call.
func get[T any](_ T, err error) error { return err }

func testNotAcceptable(t *testing.T, s *suite) {
	for _, accept := range []string{"text/html", "application/json;as=Unknown;g=meta.k8s.io;v=v1"} {
		err := s.json.CoreV1().RESTClient().Get().Namespace(s.ns).Resource("configmaps").SetHeader("Accept", accept).Do(s.ctx).Error()
		if !apierrors.IsNotAcceptable(err) {
			t.Errorf("%s: got %v, want NotAcceptable", accept, err)
		}
	}
}

func testDiscovery(t *testing.T, s *suite) {
	groups := must(restmapper.GetAPIGroupResources(s.json.Discovery()))(t)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, want := range []schema.GroupVersionResource{
		podsResource,
		corev1.SchemeGroupVersion.WithResource("nodes"),
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	} {
		kind := must(mapper.KindFor(want))(t)
		mapping := must(mapper.RESTMapping(kind.GroupKind(), kind.Version))(t)
		if mapping.Resource != want {
			t.Errorf("%v is served as %v, want %v", kind, mapping.Resource, want)
		}
		if namespaced := mapping.Scope.Name() == "namespace"; namespaced == (want.Resource == "nodes") {
			t.Errorf("%v: scope is %s", want, mapping.Scope.Name())
		}
	}
	paths := must(s.json.Discovery().OpenAPIV3().Paths())(t)
	if core, ok := paths["api/v1"]; !ok || !strings.Contains(core.ServerRelativeURL(), "?hash=") {
		t.Errorf("the OpenAPI index has no hash for api/v1")
	}
	system := must(s.json.CoreV1().Namespaces().Get(s.ctx, metav1.NamespaceSystem, metav1.GetOptions{}))(t)
	if system.UID == "" {
		t.Error("kube-system has no UID")
	}
	version := must(s.json.Discovery().ServerVersion())(t)
	if version.Major != "1" || version.Minor < "37" {
		t.Errorf("version is %s.%s, want 1.37 or later", version.Major, version.Minor)
	}
}

func testInformer(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	factory := informers.NewSharedInformerFactoryWithOptions(s.typed, 0, informers.WithNamespace(s.ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = labelSuite }))
	seen := make(chan string, 10)
	informer := factory.Core().V1().ConfigMaps().Informer()
	must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen <- "add " + obj.(*corev1.ConfigMap).Name },
		DeleteFunc: func(obj any) { seen <- "delete " + obj.(*corev1.ConfigMap).Name },
	}))(t)
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(factory.Shutdown)
	t.Cleanup(func() { close(stop) })
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "add a"},
		{func() { s.put(t, "b", nil) }, "add b"},
		{func() { s.remove(t, "a") }, "delete a"},
	} {
		step.do()
		select {
		case got := <-seen:
			if got != step.want {
				t.Errorf("the handler saw %s, want %s", got, step.want)
			}
		case <-time.After(patience):
			t.Fatalf("the handler did not see %s", step.want)
		}
	}
}
