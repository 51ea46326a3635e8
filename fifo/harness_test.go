package fifo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object returns an object "ns/name" at a version.
func object(name, rv string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: rv}}
}

func tombstone(name string, obj any) cache.DeletedFinalStateUnknown {
	return cache.DeletedFinalStateUnknown{Key: "ns/" + name, Obj: obj}
}

// known is a store that deltas are applied to.
type known struct {
	objects map[string]any
	// unreadable keys exist without an object.
	unreadable map[string]bool
	// err, if set, is what reads fail with.
	getErr, unchangedErr error
	// largest is the largest number of objects that Unchanged was asked about.
	largest int
	// onList, if set, is called by ListKeys after it has made its result.
	onList func()
}

func newKnown(objs ...*metav1.PartialObjectMetadata) *known {
	k := &known{objects: map[string]any{}, unreadable: map[string]bool{}}
	for _, obj := range objs {
		k.objects["ns/"+obj.Name] = obj
	}
	return k
}

func (k *known) ListKeys() []string {
	keys := slices.Concat(slices.Collect(maps.Keys(k.objects)), slices.Collect(maps.Keys(k.unreadable)))
	if k.onList != nil {
		k.onList()
	}
	return keys
}

func (k *known) KeysIn(after, upTo string, fn func(string) bool) error {
	if k.getErr != nil {
		return k.getErr
	}
	for _, key := range slices.Sorted(slices.Values(k.ListKeys())) {
		if key > after && (upTo == "" || key <= upTo) && !fn(key) {
			break
		}
	}
	return nil
}

func (k *known) GetByKey(key string) (any, bool, error) {
	obj, exists := k.objects[key]
	return obj, exists || k.unreadable[key], k.getErr
}

func (k *known) Holds(keys, _, rvs []string) (bool, error) {
	for i, key := range keys {
		if obj, exists := k.objects[key]; !exists || version(obj) != rvs[i] {
			return false, k.getErr
		}
	}
	return true, k.getErr
}

func (k *known) Unchanged(keys []string, objs []any) ([]bool, error) {
	k.largest = max(k.largest, len(keys))
	unchanged := make([]bool, len(keys))
	for i, key := range keys {
		old, exists := k.objects[key]
		unchanged[i] = exists && version(old) == version(objs[i])
	}
	return unchanged, k.unchangedErr
}

func version(obj any) string { return obj.(*metav1.PartialObjectMetadata).ResourceVersion }

// apply does what a consumer does.
func (k *known) apply(b Batch) {
	if b.Reset {
		clear(k.objects)
	}
	for _, d := range b.Deltas {
		switch d.Type {
		case cache.Sync:
		case cache.Deleted:
			delete(k.objects, d.Key)
			delete(k.unreadable, d.Key)
		default:
			k.objects[d.Key] = d.Object
		}
	}
}

// fixture is a queue with its consumer.
type fixture struct {
	*testing.T
	*Queue
	known *known
}

func newFixture(t *testing.T, k *known) *fixture {
	return &fixture{T: t, Queue: New(Options{Known: k}), known: k}
}

// newStreaming makes a queue whose lists are streamed, in parts of size.
func newStreaming(t *testing.T, k *known, size, limit int) *fixture {
	q := New(Options{Known: k, Stream: true, Limit: limit})
	q.maxBatch = size
	return &fixture{T: t, Queue: q, known: k}
}

type makeFixture func(*testing.T, *known) *fixture

// eachKind runs a test of lists with both kinds. A list of one part yields the
// same batches either way.
func eachKind(t *testing.T, test func(*testing.T, makeFixture)) {
	t.Run("collected", func(t *testing.T) { test(t, newFixture) })
	t.Run("streamed", func(t *testing.T) {
		test(t, func(t *testing.T, k *known) *fixture { return newStreaming(t, k, maxBatch, 0) })
	})
}

// must fails the test at an error of the queue.
func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) list(rv string, objs ...*metav1.PartialObjectMetadata) {
	f.Helper()
	r := f.NewReplacement()
	for _, obj := range objs {
		f.must(r.Add(obj))
	}
	r.Commit(rv)
}

// pop applies the next batch.
func (f *fixture) pop() Batch {
	f.Helper()
	var batch Batch
	f.must(f.PopBatch(func(b Batch) error { batch = b; f.known.apply(b); return nil }))
	return batch
}

// drain applies everything that is queued.
func (f *fixture) drain() []Batch {
	f.Helper()
	var batches []Batch
	for f.Len() > 0 || f.expansion != nil {
		batches = append(batches, f.pop())
	}
	return batches
}

// fail pops a batch that cannot be applied.
func (f *fixture) fail(cause error) {
	f.Helper()
	if err := f.PopBatch(func(Batch) error { return cause }); !errors.Is(err, cause) {
		f.Fatalf("PopBatch returned %v, want %v", err, cause)
	}
}

// failure returns what Failed has to say, or nil.
func (f *fixture) failure() error {
	select {
	case err := <-f.Failed():
		return err
	default:
		return nil
	}
}

func (f *fixture) want(b Batch, want string) {
	f.Helper()
	if got := describe(b); got != want {
		f.Errorf("got batch  %q\nwant batch %q", got, want)
	}
}

func (f *fixture) wantAll(batches []Batch, want ...string) {
	f.Helper()
	got := make([]string, len(batches))
	for i, b := range batches {
		got[i] = describe(b)
	}
	if !slices.Equal(got, want) {
		f.Errorf("got batches  %q\nwant batches %q", got, want)
	}
}

// describe writes a batch in one line, such as "Added a@1, Deleted ?b rv=2".
func describe(b Batch) string {
	var deltas []string
	for _, d := range b.Deltas {
		name := strings.TrimPrefix(d.Key, "ns/")
		deltas = append(deltas, fmt.Sprintf("%s %s", d.Type, describeObject(name, d.Object)))
	}
	parts := []string{strings.Join(deltas, ", ")}
	if b.Reset {
		parts = append(parts, "reset")
	}
	if b.RV != "" {
		parts = append(parts, "rv="+b.RV)
	}
	parts = append(parts, map[ListPart]string{NoList: "", ListPartial: "partial", ListEnd: "end"}[b.List])
	if b.CaughtUp != nil {
		parts = append(parts, fmt.Sprintf("caughtup=%t", b.CaughtUp.Confirmed))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func describeObject(name string, obj any) string {
	unknown := ""
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj, unknown = t.Obj, "?"
	}
	if obj == nil {
		return unknown + name
	}
	return unknown + name + "@" + version(obj)
}
