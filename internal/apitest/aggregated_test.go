package apitest

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func aggregated(a Aggregated) Options {
	return Options{Aggregated: map[schema.GroupVersionResource]Aggregated{configMapsGVR: a}}
}

func TestAggregated_Versions(t *testing.T) {
	for name, test := range map[string]struct {
		a                            Aggregated
		created, updated, list, gone string
	}{
		"opaque":      {Aggregated{Objects: Opaque, Lists: Opaque}, "5/0/", "6/0/", "6/0/", "7/0/"},
		"per object":  {Aggregated{Objects: PerObject, Lists: Unversioned}, "1", "2", "", "3"},
		"always zero": {Aggregated{Lists: AlwaysZero}, "5", "6", "0", "7"},
		"none":        {Aggregated{Objects: Unversioned, Lists: Unversioned}, "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, aggregated(test.a))
			w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: srv.ResourceVersion()})
			cm := configMap("a")
			check(t, srv.Create(cm))
			cm.Data = map[string]string{"key": "new"}
			check(t, srv.Update(cm))
			list, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{})
			check(t, err)
			check(t, srv.Delete(cm))
			got := []string{
				wantEvent(t, w, watch.Added, "a").GetResourceVersion(), wantEvent(t, w, watch.Modified, "a").GetResourceVersion(),
				list.ResourceVersion, wantEvent(t, w, watch.Deleted, "a").GetResourceVersion(),
			}
			if want := []string{test.created, test.updated, test.list, test.gone}; !slices.Equal(got, want) {
				t.Errorf("versions %q, want %q", got, want)
			}
		})
	}
}

func TestAggregated_Opaque_VersionsAreUnderstood(t *testing.T) {
	srv := newServer(t, aggregated(Aggregated{Objects: Opaque, Lists: Opaque}))
	a := configMap("a")
	check(t, srv.Create(a, configMap("b")))
	wantEvent(t, watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: a.ResourceVersion}), watch.Added, "b")
	list, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{
		ResourceVersion: a.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	check(t, err)
	if len(list.Items) != 1 || list.ResourceVersion != a.ResourceVersion {
		t.Errorf("%d objects at %s, want 1 at %s", len(list.Items), list.ResourceVersion, a.ResourceVersion)
	}
}

func TestAggregated_NoReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := aggregated(Aggregated{NoReplay: true})
		o.InMemory = true
		srv := newServer(t, o)
		fill(t, srv, 2)
		srv.Compact()
		var all []watch.Interface
		for _, rv := range []string{"1", "9999", "what"} {
			all = append(all, watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: rv}))
		}
		synctest.Wait()
		check(t, srv.Create(configMap("d")))
		for _, w := range all {
			wantEvent(t, w, watch.Added, "d")
		}
	})
}

func TestAggregated_NoInitialEvents_NoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range []Aggregated{{NoInitialEvents: true}, {NoInitialEvents: true, NoReplay: true, NoBookmarks: true}} {
			o := aggregated(a)
			o.InMemory = true
			srv := newServer(t, o)
			fill(t, srv, 1)
			w := watchConfigMaps(t, srv, metav1.ListOptions{
				SendInitialEvents: new(true), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(300)),
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			if !a.NoReplay {
				wantEvent(t, w, watch.Added, "c0")
			}
			for e := range w.ResultChan() {
				t.Errorf("got %v", e)
			}
		}
	})
}

func TestAggregated_NoBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := aggregated(Aggregated{NoBookmarks: true})
		o.InMemory = true
		srv := newServer(t, o)
		w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: srv.ResourceVersion(), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(300))})
		synctest.Wait()
		fill(t, srv, 1)
		wantEvent(t, w, watch.Added, "c0")
		for e := range w.ResultChan() {
			t.Errorf("got %v", e)
		}
	})
}

func TestAggregated_Lists(t *testing.T) {
	srv := newServer(t, aggregated(Aggregated{NoLimit: true, Unordered: true}))
	fill(t, srv, 20)
	order := func() (names []string) {
		list, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{Limit: 1})
		check(t, err)
		if list.Continue != "" {
			t.Error("a list without limits continues")
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		return names
	}
	first := order()
	if len(first) != 20 || slices.IsSorted(first) {
		t.Errorf("listed %v, want 20 without order", first)
	}
	check(t, srv.Create(&corev1.Secret{ObjectMeta: configMap("s").ObjectMeta}))
	if slices.Equal(first, order()) {
		t.Errorf("listed %v in the same order", first)
	}
}

func TestAggregated_Refuses(t *testing.T) {
	srv := newServer(t, aggregated(Aggregated{NoSelectors: true, NoWatch: true}))
	for _, o := range []metav1.ListOptions{{LabelSelector: "a=b"}, {FieldSelector: "metadata.name=a"}} {
		if _, err := listConfigMaps(t.Context(), t, srv, o); !apierrors.IsBadRequest(err) {
			t.Errorf("%v: %v", o, err)
		}
	}
	if _, err := client(t, srv).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("watch: %v", err)
	}
	_, err := New(Options{Aggregated: map[schema.GroupVersionResource]Aggregated{{Resource: "nonsense"}: {}}})
	if err == nil {
		t.Error("a resource that is not served was accepted")
	}
}
