package contract

import (
	"context"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

var customTests = []test{
	{"Custom_ContentSurvives", testCustomContent},
	{"Custom_WatchAndWatchList", testCustomWatch},
	{"Custom_Bookmark", testCustomBookmark},
	{"Custom_Metadata", testCustomMetadata},
	{"Custom_ProtobufOnly_NotAcceptable", testCustomProtobuf},
}

// custom returns a client of the custom resource, whose objects it deletes when
// the test ends.
func (s *suite) custom(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	if s.target.CustomResource == nil {
		t.Skip("the target has no custom resource")
	}
	client := s.dynamic.Resource(s.customResource()).Namespace(s.ns)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	return client
}

func (s *suite) customResource() schema.GroupVersionResource {
	return s.target.CustomResource.GroupVersion().WithResource(s.target.CustomResourcePlural)
}

func (s *suite) customPath() string {
	return "/apis/" + s.target.CustomResource.GroupVersion().String() + "/namespaces/" + s.ns + "/" + s.target.CustomResourcePlural
}

func (s *suite) newCustom(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"int": int64(1) << 60, "float": 0.25, "bool": true, "string": "a", "list": []any{int64(1), "b", nil},
			"map": map[string]any{"nested": map[string]any{}},
		},
	}}
	u.SetGroupVersionKind(*s.target.CustomResource)
	u.SetName(name)
	u.SetLabels(map[string]string{labelSuite: ""})
	return u
}

func testCustomContent(t *testing.T, s *suite) {
	client := s.custom(t)
	want := s.newCustom("a")
	created := must(client.Create(s.ctx, want, metav1.CreateOptions{}))(t)
	got := must(client.Get(s.ctx, "a", metav1.GetOptions{}))(t)
	if !reflect.DeepEqual(got.Object, created.Object) {
		t.Errorf("GET returned %v, CREATE %v", got.Object, created.Object)
	}
	if !reflect.DeepEqual(got.Object["spec"], want.Object["spec"]) {
		t.Errorf("spec is %#v, want %#v", got.Object["spec"], want.Object["spec"])
	}
	list := must(client.List(s.ctx, metav1.ListOptions{}))(t)
	if len(list.Items) != 1 || !reflect.DeepEqual(list.Items[0].Object, got.Object) {
		t.Errorf("LIST returned %v, GET %v", list.Items, got.Object)
	}
	version, kind := s.target.CustomResource.ToAPIVersionAndKind()
	kinds := version + " " + kind + "List of " + version + " " + kind
	if got := s.kinds(t, s.customPath(), runtime.ContentTypeJSON); got != kinds {
		t.Errorf("the JSON is %s, want %s", got, kinds)
	}
}

func testCustomWatch(t *testing.T, s *suite) {
	client := s.custom(t)
	must(client.Create(s.ctx, s.newCustom("a"), metav1.CreateOptions{}))(t)
	st := newStream(t, must(client.Watch(s.ctx, watchList("")))(t))
	st.want(watch.Added, "a")
	st.wantEnd()
	b := must(client.Create(s.ctx, s.newCustom("b"), metav1.CreateOptions{}))(t)
	if got := st.want(watch.Added, "b").(*unstructured.Unstructured); !reflect.DeepEqual(got.Object, b.Object) {
		t.Errorf("the event has %v, want %v", got.Object, b.Object)
	}
}

func testCustomBookmark(t *testing.T, s *suite) {
	client := s.custom(t)
	persisted := must(client.List(s.ctx, metav1.ListOptions{Limit: 1}))(t).GetResourceVersion()
	s.touchOther(t)
	server := must(client.List(s.ctx, metav1.ListOptions{Limit: 1}))(t).GetResourceVersion()
	st := newStream(t, must(client.Watch(s.ctx, short(persisted)))(t))
	wantBookmarks(t, st, server)
}

func testCustomMetadata(t *testing.T, s *suite) {
	client := s.custom(t)
	created := must(client.Create(s.ctx, s.newCustom("a"), metav1.CreateOptions{}))(t)
	s.eachMetadata(t, func(t *testing.T, all metadata.Interface) {
		partial := all.Resource(s.customResource()).Namespace(s.ns)
		list := must(partial.List(s.ctx, metav1.ListOptions{}))(t)
		if len(list.Items) != 1 || list.Items[0].UID != created.GetUID() {
			t.Errorf("LIST returned %v, want %s", list.Items, created.GetUID())
		}
		st := newStream(t, must(partial.Watch(s.ctx, watchList("")))(t))
		if got := st.want(watch.Added, "a"); got.GetUID() != created.GetUID() {
			t.Errorf("the event has UID %s, want %s", got.GetUID(), created.GetUID())
		}
	})
}

func testCustomProtobuf(t *testing.T, s *suite) {
	s.custom(t)
	err := s.json.CoreV1().RESTClient().Get().AbsPath(s.customPath()).SetHeader("Accept", runtime.ContentTypeProtobuf).Do(s.ctx).Error()
	if !apierrors.IsNotAcceptable(err) {
		t.Errorf("got %v, want NotAcceptable", err)
	}
}
