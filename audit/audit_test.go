package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// filled is a world with n objects, which the cache has too.
func filled(n int) *world {
	w := newWorld()
	for n := range n {
		w.put(key(n), "")
	}
	w.list()
	w.lists = 0
	return w
}

// A token that expires is replaced by the one that the server offers, or the list begins
// anew. Each object is compared, and counted, once.
func TestRun_TokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, offers := range []bool{true, false} {
			w := newWorld()
			for n := range 20 {
				w.put(key(n), "")
			}
			w.list()
			delete(w.cache, key(19))
			expiries := 0
			w.expired = func() error {
				if w.pages != 4 {
					return nil
				}
				expiries++
				w.put(key(20), "late")
				if offers {
					return expiredToken("0 " + w.nth(8))
				}
				return expiredToken("")
			}
			report := w.run(t)
			if report.Err != nil || report.Missing != 1 || report.Differences() != 1 || expiries != 1 || report.Newer != 0 {
				t.Errorf("offers %v: %+v after %d expiries", offers, report, expiries)
			}
			want := 21
			if report.Objects != want {
				t.Errorf("offers %v: %d objects, want %d", offers, report.Objects, want)
			}
		}
	})
}

// nth is the n-th key of the server.
func (w *world) nth(n int) string {
	keys := make([]string, 0, len(w.server))
	for k := range w.server {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys[n]
}

// A server that lets every token expire, and offers no other, is listed twice.
func TestRun_TokensAlwaysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for n := range 20 {
			w.put(key(n), "")
		}
		w.list()
		w.expired = func() error { return expiredToken("") }
		if report := w.run(t); report.Err == nil || errors.Is(report.Err, ErrRestored) || w.pages != 4 {
			t.Errorf("%+v after %d requests", report, w.pages)
		}
	})
}

// listerFunc is a Lister.
type listerFunc func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)

func (f listerFunc) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return f(o)
}

// What an audit cannot decide ends it, and is not counted.
func TestRun_EndsEarly(t *testing.T) {
	failed := errors.New("no")
	for name, test := range map[string]struct {
		prepare func(w *world, o *Options)
		want    error
	}{
		"the server fails": {func(_ *world, o *Options) {
			o.Lister = listerFunc(func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return nil, failed })
		}, failed},
		"out of order": {func(w *world, o *Options) {
			o.Lister = tampered(w, func(list *metav1.PartialObjectMetadataList) { slices.Reverse(list.Items) })
		}, ErrDisorder},
		"a page goes back": {func(w *world, o *Options) {
			o.Lister = listerFunc(func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				list, err := w.List(context.Background(), metav1.ListOptions{})
				return list, err
			})
		}, ErrDisorder},
		"the list has no version": {func(w *world, o *Options) {
			o.Lister = tampered(w, func(list *metav1.PartialObjectMetadataList) { list.ResourceVersion = "" })
		}, ErrIncomparable},
		"versions are not numbers": {func(w *world, o *Options) {
			o.Lister = tampered(w, func(list *metav1.PartialObjectMetadataList) { list.ResourceVersion = "v1" })
		}, ErrIncomparable},
		"stored without a version": {func(w *world, _ *Options) { w.cache[key(0)] = &metav1.PartialObjectMetadata{} }, ErrIncomparable},
		"stored without metadata":  {func(w *world, o *Options) { o.Local = bare{w} }, ErrIncomparable},
		"restored":                 {func(w *world, _ *Options) { w.version = 1000 }, ErrRestored},
		"behind":                   {func(w *world, _ *Options) { w.behind = true; w.put(key(0), "new") }, ErrBehind},
		"too many deletes":         {func(w *world, o *Options) { delete(w.cache, key(0)); o.Local = busy{w} }, ErrBusy},
		"listed all the time":      {func(w *world, _ *Options) { w.step = w.list }, ErrUnsettled},
		"never readable":           {func(w *world, o *Options) { o.Local = unreadable{w, failed} }, failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := filled(7)
				report := w.run(t, func(o *Options) { test.prepare(w, o) })
				if !errors.Is(report.Err, test.want) || report.Differences() != 0 || report.Result() != Failed {
					t.Errorf("%+v, want %v", report, test.want)
				}
				if needs := errors.Is(test.want, ErrRestored); report.NeedsList() != needs {
					t.Errorf("NeedsList is %v", !needs)
				}
			})
		})
	}
}

// tampered changes what a world lists.
func tampered(w *world, change func(*metav1.PartialObjectMetadataList)) Lister {
	return listerFunc(func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		list, err := w.List(context.Background(), o)
		change(list)
		return list, err
	})
}

// bare holds something that has no metadata, unreadable cannot be read, busy has too much
// to remember.
type (
	bare       struct{ *world }
	unreadable struct {
		*world
		err error
	}
	busy struct{ *world }
)

func (bare) Range(_, _ string, fn func(string, any) bool) error {
	fn(key(0), "a string")
	return nil
}

func (u unreadable) Range(string, string, func(string, any) bool) error { return u.err }

func (busy) Deleted(string) (bool, error) { return false, ErrBusy }

// An audit that ends early reports what it has found until then.
func TestRun_KeepsWhatItHasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(7)
		delete(w.cache, w.nth(0))
		w.expired = func() error { return errors.New("gone away") }
		if report := w.run(t); report.Err == nil || report.Missing != 1 || !report.NeedsList() {
			t.Errorf("%+v", report)
		}
	})
}

// What is the same needs no explanation: the cache need not have reached the version of
// the page, which it never does without bookmarks.
func TestRun_SameIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(7)
		w.rv += 100 // of another resource
		w.behind = true
		if report := w.run(t); report.Result() != Verified || report.Objects != 7 || report.Pages != 3 {
			t.Errorf("%+v", report)
		}
	})
}

// What was created and deleted again before the cache has heard of it is not missing. A list
// that fills the cache meanwhile does not tell of it, and the pages go on at their version.
func TestRun_FilledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(7)
		w.put("ns2/z", "short-lived") // the last one
		once := sync.OnceFunc(func() {
			w.remove("ns2/z")
			w.list()
		})
		report := w.run(t, func(o *Options) {
			o.Lister = listerFunc(func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				if o.Continue != "" {
					once()
				}
				return w.List(context.Background(), o)
			})
		})
		if report.Result() != Verified || report.Objects != 8 || report.Newer != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// An empty page with a token says nothing about the range of keys.
func TestRun_EmptyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(5)
		first := true
		report := w.run(t, func(o *Options) {
			o.Lister = listerFunc(func(o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				if first {
					first = false
					return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: w.Version(), Continue: w.Version() + " "}}, nil
				}
				return w.List(context.Background(), o)
			})
		})
		if report.Result() != Verified || report.Objects != 5 {
			t.Errorf("%+v", report)
		}
	})
}

// Metadata is not compared where a transform may have changed it.
func TestRun_Transformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(3)
		changed := w.cache[key(1)].DeepCopy()
		changed.Labels = nil
		w.cache[key(1)] = changed
		for transformed, want := range map[bool]int{true: 0, false: 1} {
			if report := w.run(t, func(o *Options) { o.Transformed = transformed }); report.Different != want || report.Err != nil {
				t.Errorf("transformed %v: %+v", transformed, report)
			}
		}
	})
}

// TestRun_Rate checks that pages keep to the rate.
func TestRun_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(25)
		w.pageLimit = 10
		for rate, want := range map[int]time.Duration{5: 4 * time.Second, 0: 40 * time.Millisecond} {
			report := w.run(t, func(o *Options) { o.Rate = rate })
			if took := report.Finished.Sub(report.Started); took != want || report.Pages != 3 {
				t.Errorf("%d objects a second: %d pages in %s, want 3 in %s", rate, report.Pages, took, want)
			}
		}
	})
}

func TestRun_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		w := filled(25)
		w.pageLimit = 10
		report := Run(ctx, Options{Lister: w, Local: w, Rate: 5})
		if !errors.Is(report.Err, context.DeadlineExceeded) || report.Pages != 2 {
			t.Errorf("%+v", report)
		}
	})
}

func TestReport_Bounds(t *testing.T) {
	var r Report
	for n := range 3 * maxFindings {
		r.add([]finding{{kind: extra, key: fmt.Sprint(n)}})
	}
	if r.Extra != 3*maxFindings || len(r.Examples) != 10 || len(r.findings) != maxFindings {
		t.Errorf("%d extra, %d examples, %d findings", r.Extra, len(r.Examples), len(r.findings))
	}
}

// TestReport_Remains looks at what a list has left of each kind of difference.
func TestReport_Remains(t *testing.T) {
	at := func(uid string, rv int) *metav1.PartialObjectMetadata { return object("ns/o", uid, rv, "") }
	for name, test := range map[string]struct {
		kind    kind
		now     *metav1.PartialObjectMetadata
		deleted bool
		want    bool
	}{
		"missing, and still":          {kind: missing, want: true},
		"missing, and deleted":        {kind: missing, deleted: true},
		"missing, and listed":         {kind: missing, now: at("a", 5)},
		"extra, and still":            {kind: extra, now: at("a", 5), want: true},
		"extra, and gone":             {kind: extra},
		"extra, and created":          {kind: extra, now: at("b", 9)},
		"different, and still":        {kind: different, now: at("a", 4), want: true},
		"different, and still by UID": {kind: different, now: at("b", 5), want: true},
		"different, and listed":       {kind: different, now: at("a", 5)},
		"different, and updated":      {kind: different, now: at("a", 6)},
		"different, and deleted":      {kind: different, deleted: true},
	} {
		w := newWorld()
		w.deleted["ns/o"] = test.deleted
		if test.now != nil {
			w.cache["ns/o"] = test.now
		}
		r := Report{findings: []finding{{kind: test.kind, key: "ns/o", uid: "a", rv: "5"}}}
		if got, err := r.Remains(w); got != test.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestReport_Recurs(t *testing.T) {
	found := func(err error, keys ...string) Report {
		r := Report{Err: err}
		for _, key := range keys {
			r.add([]finding{{kind: different, key: key}})
		}
		return r
	}
	for name, test := range map[string]struct {
		earlier Report
		want    bool
	}{
		"the same, not removed":  {found(ErrUnrepaired, "a", "b"), true},
		"the same, removed":      {found(nil, "a", "b"), false},
		"less":                   {found(ErrUnrepaired, "a"), false},
		"others":                 {found(ErrUnrepaired, "a", "c"), false},
		"there was none earlier": {Report{}, false},
	} {
		if got := found(nil, "a", "b").Recurs(test.earlier); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSameMetadata changes one thing at a time.
func TestSameMetadata(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	full := func() *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e"}, Generation: 2,
			OwnerReferences: []metav1.OwnerReference{{Kind: "Owner", Name: "o", UID: "u", Controller: ptr.To(true)}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "m", Operation: metav1.ManagedFieldsOperationApply, Time: &now, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{},"f:data":{".":{},"k:{\"x\":\"a&b\"}":{}}}`),
			}},
		}
	}
	for name, test := range map[string]struct {
		change func(*metav1.ObjectMeta)
		same   bool
	}{
		"nothing":           {func(*metav1.ObjectMeta) {}, true},
		"label":             {func(m *metav1.ObjectMeta) { m.Labels["a"] = "x" }, false},
		"annotation":        {func(m *metav1.ObjectMeta) { m.Annotations = nil }, false},
		"finalizer":         {func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, "x") }, false},
		"generation":        {func(m *metav1.ObjectMeta) { m.Generation++ }, false},
		"deletion":          {func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, false},
		"owner":             {func(m *metav1.ObjectMeta) { m.OwnerReferences[0].UID = "x" }, false},
		"controller":        {func(m *metav1.ObjectMeta) { m.OwnerReferences[0].Controller = nil }, false},
		"no block is false": {func(m *metav1.ObjectMeta) { m.OwnerReferences[0].BlockOwnerDeletion = ptr.To(false) }, true},
		"manager":           {func(m *metav1.ObjectMeta) { m.ManagedFields[0].Manager = "x" }, false},
		"time of a manager": {func(m *metav1.ObjectMeta) { m.ManagedFields[0].Time = nil }, false},
		"no fields":         {func(m *metav1.ObjectMeta) { m.ManagedFields[0].FieldsV1 = nil }, false},
		"fields": {func(m *metav1.ObjectMeta) {
			m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{}}`)
		}, false},
		"fields, spelled":    {func(m *metav1.ObjectMeta) { m.ManagedFields[0].FieldsV1 = respelled }, true},
		"fields, not JSON":   {func(m *metav1.ObjectMeta) { m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{`) }, false},
		"what is not shared": {func(m *metav1.ObjectMeta) { m.SelfLink = "x" }, true},
	} {
		changed := full()
		test.change(changed)
		if got := sameMetadata(full(), changed); got != test.same {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !sameMetadata(&metav1.ObjectMeta{}, &metav1.ObjectMeta{Labels: map[string]string{}, Finalizers: []string{}}) {
		t.Error("nil and empty are not the same")
	}
}

// respelled are the same fields, in another order and with other escapes.
var respelled = metav1.NewFieldsV1(strings.ReplaceAll(`{"f:data":{"k:{\"x\":\"a&b\"}":{},".":{}},"f:metadata":{}}`, "&", `\u0026`))
