package factory

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/ptr"
)

func podCaller(t *testing.T, client kubernetes.Interface) caller {
	t.Helper()
	r, ok := clientsetResources().byGVR[corev1.SchemeGroupVersion.WithResource("pods")]
	if !ok {
		t.Fatal("no pods")
	}
	return caller{clientset: client, resource: r}
}

func TestCaller_TweaksEveryRequest(t *testing.T) {
	client, rec := nowhere(t)
	c := podCaller(t, client)
	c.tweak = func(o *metav1.ListOptions) { o.LabelSelector, o.Limit = "app=web", 7 }
	lw := c.listerWatcher()
	_, _ = cache.ToListerWithContext(lw).ListWithContext(t.Context(), metav1.ListOptions{Limit: 500})
	_, _ = cache.ToWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{})
	_, _ = lw.List(metav1.ListOptions{})
	_, _ = lw.Watch(metav1.ListOptions{})
	requests := rec.take()
	if len(requests) != 4 {
		t.Fatalf("%d requests, want 4", len(requests))
	}
	for _, r := range requests {
		if q := r.URL.Query(); q.Get("labelSelector") != "app=web" || q.Get("limit") != "7" {
			t.Errorf("%v: tweak is not applied", r.URL)
		}
	}
}

func TestCaller_PassesContext(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "x")
	client, rec := nowhere(t)
	c := podCaller(t, client)
	_, _ = c.list(ctx, metav1.ListOptions{})
	_, _ = c.watch(ctx, metav1.ListOptions{})
	for _, r := range rec.take() {
		if r.Context().Value(key{}) != "x" {
			t.Errorf("%v: context of the caller did not arrive", r.URL)
		}
	}
}

func TestCaller_ErrorHidesTheEmptyList(t *testing.T) {
	client := fake.NewClientset()
	failure := errors.New("etcd is on holiday")
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{}, failure
	})
	list, err := podCaller(t, client).list(t.Context(), metav1.ListOptions{})
	if !errors.Is(err, failure) || list != nil {
		t.Errorf("list = %v, %v; want nil and the error", list, err)
	}
}

// rotating is a clientset that is exchanged while informers run, for example
// when its credentials are.
type rotating struct {
	kubernetes.Interface
	current kubernetes.Interface
}

func (r *rotating) CoreV1() typedcorev1.CoreV1Interface { return r.current.CoreV1() }

func TestCaller_AsksTheClientsetEachTime(t *testing.T) {
	client := &rotating{current: fake.NewClientset()}
	c := podCaller(t, client)
	client.current = fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
	list, err := c.list(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.(*corev1.PodList).Items) != 1 {
		t.Errorf("list = %v, %v; want the pod of the exchanged clientset", list, err)
	}
}

func TestCaller_ListerWatcher_TellsFakesApart(t *testing.T) {
	if lw := podCaller(t, fake.NewClientset()).listerWatcher(); !watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		t.Error("a fake seems to support WatchList")
	}
	real, _ := nowhere(t)
	if lw := podCaller(t, real).listerWatcher(); watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		t.Error("a real client seems not to support WatchList")
	}
}

func TestSelectionOf_Canonical(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tweak internalinterfaces.TweakListOptionsFunc
		want  selection
	}{
		{"none", nil, selection{}},
		{"empty", func(*metav1.ListOptions) {}, selection{}},
		{"order and spaces", func(o *metav1.ListOptions) {
			o.LabelSelector = "tier in (b, a),app = web"
			o.FieldSelector = "status.phase!=Failed,spec.nodeName=n1"
		}, selection{labels: "app=web,tier in (a,b)", fields: "spec.nodeName=n1,status.phase!=Failed"}},
		{"shape of the transfer", func(o *metav1.ListOptions) {
			o.LabelSelector, o.Limit, o.TimeoutSeconds, o.AllowWatchBookmarks = "a=b", 100, ptr.To[int64](60), true
		}, selection{labels: "a=b"}},
	} {
		if got, err := selectionOf(tc.tweak); err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got, err, tc.want)
		}
	}
}

func TestSelectionOf_RefusesWhatHasNoIdentity(t *testing.T) {
	for want, tweak := range map[string]internalinterfaces.TweakListOptionsFunc{
		"label selector":     func(o *metav1.ListOptions) { o.LabelSelector = "a in" },
		"field selector":     func(o *metav1.ListOptions) { o.FieldSelector = "nonsense" },
		"beyond selectors":   func(o *metav1.ListOptions) { o.ResourceVersion = "0" },
		"beyond selectors, ": func(o *metav1.ListOptions) { o.ShardSelector = "x" },
		"beyond ":            func(o *metav1.ListOptions) { o.Continue = "x" },
		"tweaked beyond":     func(o *metav1.ListOptions) { o.SendInitialEvents = ptr.To(false) },
		"tweaked":            func(o *metav1.ListOptions) { o.ResourceVersionMatch = metav1.ResourceVersionMatchExact },
	} {
		got, err := selectionOf(tweak)
		if err == nil || !strings.Contains(err.Error(), want) || got != (selection{}) {
			t.Errorf("%+v, %v; want an error with %q", got, err, want)
		}
	}
}

// TestApplyTweak_KeepsWhatIsAskedFor checks that a question for one object stays one,
// whatever a tweak selects, and in whatever way it does.
func TestApplyTweak_KeepsWhatIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tweak internalinterfaces.TweakListOptionsFunc
		asked string
		want  string
	}{
		{"nothing", nil, "metadata.name=a", "metadata.name=a"},
		{"labels", func(o *metav1.ListOptions) { o.LabelSelector = "app=web" }, "metadata.name=a", "metadata.name=a"},
		{"fields", func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=n" }, "metadata.name=a", "spec.nodeName=n,metadata.name=a"},
		{"fields set to nothing", func(o *metav1.ListOptions) { o.FieldSelector = "" }, "metadata.name=a", "metadata.name=a"},
		{"fields added", func(o *metav1.ListOptions) { o.FieldSelector += "spec.nodeName=n" }, "metadata.name=a", "spec.nodeName=n,metadata.name=a"},
		{"fields, nothing asked for", func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=n" }, "", "spec.nodeName=n"},
	} {
		opts := metav1.ListOptions{FieldSelector: tc.asked}
		if applyTweak(tc.tweak, &opts); opts.FieldSelector != tc.want {
			t.Errorf("%s: selects %q, want %q", tc.name, opts.FieldSelector, tc.want)
		}
	}
}
