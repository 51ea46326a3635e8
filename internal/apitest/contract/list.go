package contract

import (
	"slices"
	"sort"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

var listTests = []test{
	{"List_ByteOrderOfKeys", testListOrder},
	{"List_Namespace_OnlyItsObjects", testListNamespace},
	{"List_Empty_HasCurrentVersion", testListEmpty},
	{"List_BadParameters_Refused", testListBadParameters},
}

var pageTests = []test{
	{"Page_PinnedToFirstVersion", testPagePinned},
	{"Page_RemainingItemCount_OnlyUnselected", testPageRemaining},
	{"Page_Selected_AllPagesTogether", testPageSelected},
	{"Page_LimitIgnoredAtVersionZero", testPageVersionZero},
}

var versionTests = []test{
	{"Exact_OldState", testExactOldState},
	{"Exact_WithLimit_RemainingItemCount", testExactLimit},
	{"LegacyExact_LimitAndVersion", testLegacyExact},
	{"NotOlderThan_IsAtLeastThat", testNotOlderThan},
	{"TooLarge_Timeout", testTooLarge},
}

func testListOrder(t *testing.T, s *suite) {
	var want []string
	for _, suffix := range []string{"-a", "-a-b", "-a0", "-ab"} {
		namespace := s.ns + suffix
		s.namespace(t, namespace)
		t.Cleanup(func() { s.clean(t, namespace) })
		for _, name := range []string{"b", "a.b", "a-b", "ab", "a", "a0", "0"} {
			s.putIn(t, namespace, name, map[string]string{"order": "yes"})
			want = append(want, namespace+"/"+name)
		}
	}
	sort.Strings(want)
	for name, opts := range map[string]metav1.ListOptions{
		"consistent": {},
		"any":        {ResourceVersion: "0"},
		"pages":      {Limit: 3},
	} {
		opts.LabelSelector = "order=yes"
		if got := s.listKeys(t, opts); !slices.Equal(got, want) {
			t.Errorf("%s: order is %v, want %v", name, got, want)
		}
	}
}

// listKeys lists ConfigMaps of all namespaces, page by page.
func (s *suite) listKeys(t *testing.T, opts metav1.ListOptions) []string {
	t.Helper()
	var keys []string
	for range 100 {
		list := must(s.typed.CoreV1().ConfigMaps("").List(s.ctx, opts))(t)
		for _, item := range list.Items {
			keys = append(keys, item.Namespace+"/"+item.Name)
		}
		if list.Continue == "" {
			return keys
		}
		opts.Continue, opts.ResourceVersion = list.Continue, ""
	}
	t.Fatal("pages do not end")
	return nil
}

func testListNamespace(t *testing.T, s *suite) {
	other := s.ns + "-other"
	s.namespace(t, other)
	t.Cleanup(func() { s.clean(t, other) })
	s.putIn(t, other, "theirs", nil)
	s.put(t, "ours", nil)
	if got := names(s.list(t, metav1.ListOptions{LabelSelector: labelSuite})); !slices.Equal(got, []string{"ours"}) {
		t.Errorf("got %v, want ours", got)
	}
}

func testListEmpty(t *testing.T, s *suite) {
	written := s.touchOther(t)
	list := s.list(t, metav1.ListOptions{LabelSelector: "no=such"})
	if len(list.Items) != 0 {
		t.Errorf("got %v, want nothing", list.Items)
	}
	if compare(t, list.ResourceVersion, written) < 0 {
		t.Errorf("version %s is older than a write of another resource before it, %s", list.ResourceVersion, written)
	}
}

func testListBadParameters(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	s.put(t, "b", nil)
	first := s.list(t, metav1.ListOptions{Limit: 1})
	for name, tt := range map[string]struct {
		opts metav1.ListOptions
		is   func(error) bool
	}{
		"version":            {metav1.ListOptions{ResourceVersion: "abc"}, apierrors.IsBadRequest},
		"continue":           {metav1.ListOptions{Continue: "abc"}, apierrors.IsBadRequest},
		"field":              {metav1.ListOptions{FieldSelector: "no.such=field"}, apierrors.IsBadRequest},
		"label":              {metav1.ListOptions{LabelSelector: "a in b in c"}, apierrors.IsBadRequest},
		"match alone":        {metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsInvalid},
		"exactly zero":       {metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsInvalid},
		"initial events":     {metav1.ListOptions{SendInitialEvents: new(true)}, apierrors.IsInvalid},
		"version, continued": {metav1.ListOptions{ResourceVersion: first.ResourceVersion, Continue: first.Continue}, apierrors.IsBadRequest},
	} {
		if _, err := s.configMaps().List(s.ctx, tt.opts); !tt.is(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// fill creates n ConfigMaps named a, b, c, ...
func (s *suite) fill(t *testing.T, n int) []*corev1.ConfigMap {
	t.Helper()
	var all []*corev1.ConfigMap
	for i := range n {
		all = append(all, s.put(t, string(rune('a'+i)), map[string]string{"odd": strconv.FormatBool(i%2 == 1)}))
	}
	return all
}

func testPagePinned(t *testing.T, s *suite) {
	all := s.fill(t, 5)
	first := s.list(t, metav1.ListOptions{LabelSelector: labelSuite, Limit: 2})
	s.change(t, all[3], func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	s.remove(t, "c")
	s.put(t, "cc", nil)
	rest := s.list(t, metav1.ListOptions{LabelSelector: labelSuite, Continue: first.Continue})
	if got := names(rest); !slices.Equal(got, []string{"c", "d", "e"}) {
		t.Errorf("the second page has %v, want c, d, e as they were", got)
	}
	if rest.Items[1].ResourceVersion != all[3].ResourceVersion {
		t.Errorf("d is at %s, want %s as it was", rest.Items[1].ResourceVersion, all[3].ResourceVersion)
	}
	if rest.ResourceVersion != first.ResourceVersion || rest.Continue != "" {
		t.Errorf("the second page is at %s and continues %q, want %s and the end", rest.ResourceVersion, rest.Continue, first.ResourceVersion)
	}
}

func testPageRemaining(t *testing.T, s *suite) {
	s.fill(t, 5)
	total := len(s.list(t, metav1.ListOptions{}).Items) // others may be in the namespace
	list := s.list(t, metav1.ListOptions{Limit: 2})
	if list.RemainingItemCount == nil || int(*list.RemainingItemCount) != total-2 {
		t.Errorf("remaining %v of %d after 2", list.RemainingItemCount, total)
	}
	list = s.list(t, metav1.ListOptions{Limit: 1, Continue: list.Continue})
	if list.RemainingItemCount == nil || int(*list.RemainingItemCount) != total-3 {
		t.Errorf("remaining %v of %d after 3", list.RemainingItemCount, total)
	}
	list = s.list(t, metav1.ListOptions{Limit: 2, LabelSelector: labelSuite})
	if list.RemainingItemCount != nil || list.Continue == "" {
		t.Errorf("selected: remaining %v, continue %q; want no number, and a token", list.RemainingItemCount, list.Continue)
	}
	list = s.list(t, metav1.ListOptions{Limit: int64(total)})
	if list.RemainingItemCount != nil || list.Continue != "" {
		t.Errorf("all: remaining %v, continue %q; want neither", list.RemainingItemCount, list.Continue)
	}
}

func testPageSelected(t *testing.T, s *suite) {
	s.fill(t, 7)
	got := s.listKeys(t, metav1.ListOptions{LabelSelector: "odd=true", Limit: 1})
	if want := []string{s.ns + "/b", s.ns + "/d", s.ns + "/f"}; !slices.Equal(got, want) {
		t.Errorf("pages have %v, want %v", got, want)
	}
}

func testPageVersionZero(t *testing.T, s *suite) {
	s.fill(t, 3)
	s.current(t) // so that the watch cache has seen them
	list := s.list(t, metav1.ListOptions{LabelSelector: labelSuite, ResourceVersion: "0", Limit: 1})
	if len(list.Items) != 3 || list.Continue != "" {
		t.Errorf("got %d items and continue %q, want all", len(list.Items), list.Continue)
	}
}

func testExactOldState(t *testing.T, s *suite) {
	all := s.fill(t, 3)
	then := s.current(t)
	s.change(t, all[0], func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	s.remove(t, "b")
	s.put(t, "bb", nil)
	list := s.list(t, metav1.ListOptions{
		LabelSelector: labelSuite, ResourceVersion: then, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if got := names(list); !slices.Equal(got, []string{"a", "b", "c"}) || list.ResourceVersion != then {
		t.Errorf("got %v at %s, want a, b, c at %s", got, list.ResourceVersion, then)
	}
	if got := list.Items[0]; got.ResourceVersion != all[0].ResourceVersion || got.Data["key"] != all[0].Data["key"] {
		t.Errorf("a is %v, want %v as it was", got, all[0])
	}
}

func testExactLimit(t *testing.T, s *suite) {
	s.fill(t, 3)
	before := s.list(t, metav1.ListOptions{})
	s.put(t, "d", nil)
	list := s.list(t, metav1.ListOptions{
		Limit: 1, ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if want := int64(len(before.Items) - 1); list.RemainingItemCount == nil || *list.RemainingItemCount != want {
		t.Errorf("remaining %v, want %d", list.RemainingItemCount, want)
	}
}

func testLegacyExact(t *testing.T, s *suite) {
	s.fill(t, 2)
	then := s.current(t)
	s.put(t, "c", nil)
	list := s.list(t, metav1.ListOptions{LabelSelector: labelSuite, ResourceVersion: then, Limit: 100})
	if got := names(list); !slices.Equal(got, []string{"a", "b"}) || list.ResourceVersion != then {
		t.Errorf("got %v at %s, want a, b at %s", got, list.ResourceVersion, then)
	}
}

func testNotOlderThan(t *testing.T, s *suite) {
	s.put(t, "a", nil)
	b := s.put(t, "b", nil)
	for _, match := range []metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchNotOlderThan} {
		list := s.list(t, metav1.ListOptions{LabelSelector: labelSuite, ResourceVersion: b.ResourceVersion, ResourceVersionMatch: match})
		if len(list.Items) != 2 || compare(t, list.ResourceVersion, b.ResourceVersion) < 0 {
			t.Errorf("match %q: %d items at %s, want 2 at %s or later", match, len(list.Items), list.ResourceVersion, b.ResourceVersion)
		}
	}
}

// testTooLarge asks once only: client-go would ask again, because the answer
// says when.
func testTooLarge(t *testing.T, s *suite) {
	rv := future(t, s.current(t))
	for _, match := range []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan} {
		opts := &metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: match}
		err := s.typed.CoreV1().RESTClient().Get().MaxRetries(0).
			Namespace(s.ns).Resource("configmaps").VersionedParams(opts, scheme.ParameterCodec).Do(s.ctx).Error()
		if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("%s: got %v, want a timeout with cause %s", match, err, metav1.CauseTypeResourceVersionTooLarge)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
			t.Errorf("%s: suggested delay is %d, %v; want 1", match, seconds, ok)
		}
	}
}
