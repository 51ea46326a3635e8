package indexer

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// What a world reads, and what it compares it with.

func equal(got, want any) bool { return got == want || reflect.DeepEqual(got, want) }

// someKey returns a key that may exist.
func (w *world) someKey() string {
	if w.chance(20) {
		return pick(w, "", "absent", "a/", "/", "ab/absent")
	}
	return keyOf(w.pod())
}

func (w *world) someIndex() string {
	if w.chance(20) {
		return "absent"
	}
	return pick(w, slices.Sorted(maps.Keys(randomIndices))...)
}

func (w *world) someValue() string {
	return pick(w, "", "x", "y", "n\x00/ü", "app x", "app y", "node-1", "node-2", "a", "a-b", "a0", "ab", "absent")
}

// read asks one question.
func (w *world) read() {
	reads := []func(){
		w.readKey, w.readKey, w.readKey, w.readObject, w.readAll, w.readIndex, w.readIndex, w.readIndex, w.readIndexOf,
		w.readValues, w.iterate, w.iterate, w.readKnown, w.readKeysIn, w.readUnchanged,
	}
	if w.Residency() == Disk {
		reads = append(reads, w.readChunks)
	}
	reads[w.IntN(len(reads))]()
}

func (w *world) readKey() {
	key := w.someKey()
	got, exists, err := w.GetByKey(key)
	want, wantExists, _ := w.want.GetByKey(key)
	if !equal(got, want) || exists != wantExists || err != nil {
		w.Fatalf("GetByKey(%s): %v, %t, %v; client-go has %v", key, got, exists, err, want)
	}
}

func (w *world) readObject() {
	obj := w.deletable(w.pod())
	got, exists, err := w.Get(obj)
	want, wantExists, _ := w.want.Get(obj)
	if !equal(got, want) || exists != wantExists || err != nil {
		w.Fatalf("Get(%v): %v, %t, %v; client-go has %v", obj, got, exists, err, want)
	}
}

func (w *world) readAll() {
	w.same("ListKeys", w.ListKeys(), w.want.ListKeys())
	if got := w.Len(); got != len(w.want.ListKeys()) {
		w.Fatalf("Len is %d, client-go has %d", got, len(w.want.ListKeys()))
	}
	if w.chance(4) {
		w.sameObjects("List", w.List(), w.want.List())
	}
}

func (w *world) readIndex() {
	name, value := w.someIndex(), w.someValue()
	what := fmt.Sprintf("index %s, value %q", name, value)
	gotKeys, gotErr := w.IndexKeys(name, value)
	wantKeys, wantErr := w.want.IndexKeys(name, value)
	w.sameError(what, gotErr, wantErr)
	w.same(what, gotKeys, wantKeys)
	got, gotErr := w.ByIndex(name, value)
	want, wantErr := w.want.ByIndex(name, value)
	w.sameError(what, gotErr, wantErr)
	w.sameObjects(what, got, want)
}

func (w *world) readIndexOf() {
	p := w.pod()
	if p.Annotations["apps"] = pick(w, "", "x", "x,n\x00/ü"); w.chance(2) {
		p.Namespace = "absent"
	}
	name := w.someIndex()
	got, gotErr := w.Index(name, p)
	want, wantErr := w.want.Index(name, p)
	w.sameError(name, gotErr, wantErr)
	w.sameObjects("Index of "+name, got, want)
}

func (w *world) readValues() {
	name := w.someIndex()
	w.same("values of "+name, w.ListIndexFuncValues(name), w.want.ListIndexFuncValues(name))
	w.same("GetIndexers", slices.Collect(maps.Keys(w.GetIndexers())), slices.Collect(maps.Keys(w.want.GetIndexers())))
}

// iterate compares a sequence with what client-go's indexer would let through.
func (w *world) iterate() {
	q := Query{Namespace: pick(w, "", "", "a", "a-b", "a0", "ab", "absent")}
	if w.chance(2) {
		q.Index, q.Value = w.someIndex(), w.someValue()
	}
	if w.chance(2) {
		q.Selector = pick(w, labels.Everything(), labels.Nothing(), labels.SelectorFromSet(labels.Set{"l": "1"}))
	}
	want := w.want.ListKeys()
	if q.Index != "" {
		var err error
		if want, err = w.want.IndexKeys(q.Index, q.Value); err != nil {
			w.sameError(fmt.Sprint("Objects of ", q), errorOf(w.Objects(q)), err)
			return
		}
	}
	var got []runtime.Object
	for p, err := range Iterate[*corev1.Pod](w.Indexer, q) {
		if err != nil {
			w.Fatalf("Objects(%+v): %v", q, err)
		}
		got = append(got, p)
	}
	slices.Sort(want)
	for _, key := range want {
		item, _, _ := w.want.GetByKey(key)
		p := item.(*corev1.Pod)
		if q.Namespace != "" && p.Namespace != q.Namespace || q.Selector != nil && !q.Selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if len(got) == 0 || !equal(got[0], p) {
			w.Fatalf("Objects(%+v): want %s next, then come %v", q, key, got)
		}
		got = got[1:]
	}
	if len(got) > 0 {
		w.Fatalf("Objects(%+v): too many, %v", q, got)
	}
}

// errorOf returns the error that ends a sequence, or nil.
func errorOf[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) readChunks() {
	after := w.someKey()
	var got []string
	for from := after; ; {
		c, err := w.Chunk(from)
		if err != nil {
			w.Fatalf("Chunk(%s): %v", from, err)
		}
		if c.Len() == 0 {
			break
		}
		for n := range c.Len() {
			obj, err := c.Object(n)
			want, _, _ := w.want.GetByKey(c.Key(n))
			if !equal(obj, want) || err != nil {
				w.Fatalf("Chunk(%s): %s is %v, %v; want %v", from, c.Key(n), obj, err, want)
			}
			from = c.Key(n)
			got = append(got, from)
		}
	}
	want := slices.DeleteFunc(w.want.ListKeys(), func(key string) bool { return key <= after })
	if slices.Sort(want); !slices.Equal(got, want) {
		w.Fatalf("chunks after %q have %v, want %v", after, got, want)
	}
}

func (w *world) readKnown() {
	known := w.Known()
	w.same("known keys", append([]string{}, known.ListKeys()...), slices.AppendSeq([]string{}, maps.Keys(w.stored)))
	key := w.someKey()
	got, exists, err := known.GetByKey(key)
	want, _, _ := w.want.GetByKey(key)
	if !equal(got, want) || exists != (w.stored[key] != nil) || err != nil {
		w.Fatalf("Known.GetByKey(%s): %v, %t, %v; want %v", key, got, exists, err, want)
	}
	if w.chance(5) {
		w.readDeparted()
	}
}

func (w *world) readDeparted() {
	departed, err := w.Departed()
	if err != nil {
		w.Fatal(err)
	}
	if w.write.collection == nil {
		return // after Detach
	}
	for _, d := range departed {
		if !equal(d.Object, w.departed[departedID{d.Key, d.UID}]) {
			w.Fatalf("%s departed as %v, want %v", d.Key, d.Object, w.departed[departedID{d.Key, d.UID}])
		}
	}
	if len(departed) != len(w.departed) {
		w.Fatalf("%d departed, want %d", len(departed), len(w.departed))
	}
}

func (w *world) readKeysIn() {
	after, upTo := w.someKey(), w.someKey()
	if w.chance(4) {
		upTo = ""
	}
	var got, want []string
	err := w.Known().KeysIn(after, upTo, func(key string) bool { got = append(got, key); return true })
	for key := range w.sortedStored() {
		if key > after && (upTo == "" || key <= upTo) {
			want = append(want, key)
		}
	}
	if !slices.Equal(got, want) || err != nil {
		w.Fatalf("KeysIn(%q, %q): %v, %v; want %v", after, upTo, got, err, want)
	}
}

// readUnchanged asks what is stored of some objects, of which some are.
func (w *world) readUnchanged() {
	if w.write.collection == nil {
		return // after Detach
	}
	var keys []string
	var objs []any
	var want []bool
	for range w.IntN(20) {
		key := w.someKey()
		p := w.stored[key]
		unchanged := p != nil && !w.foreign[key] && w.chance(2)
		if !unchanged {
			p = w.pod()
			p.Spec.Hostname = "changed"
		}
		keys, objs, want = append(keys, key), append(objs, p.DeepCopy()), append(want, unchanged)
	}
	if got, err := w.Known().Unchanged(keys, objs); !slices.Equal(got, want) || err != nil {
		w.Fatalf("Unchanged(%v): %v, %v; want %v", keys, got, err, want)
	}
}

// compareAll compares everything, file included.
func (w *world) compareAll() {
	w.note("compare all")
	if got := w.LastStoreSyncResourceVersion(); got != w.version {
		w.Fatalf("version %q, want %q", got, w.version)
	}
	w.readAll()
	w.sameObjects("List", w.List(), w.want.List())
	w.readKnown()
	for name := range randomIndices {
		w.same("values of "+name, w.ListIndexFuncValues(name), w.want.ListIndexFuncValues(name))
		for _, value := range w.want.ListIndexFuncValues(name) {
			got, gotErr := w.ByIndex(name, value)
			want, wantErr := w.want.ByIndex(name, value)
			w.sameError(name, gotErr, wantErr)
			w.sameObjects(name+", value "+value, got, want)
		}
	}
	if w.Residency() == Disk {
		w.readChunks()
		if s := w.CacheStats(); s.Bytes > s.Budget || s.Objects > int64(len(w.want.ListKeys())) {
			w.Fatalf("%+v for %d objects", s, len(w.want.ListKeys()))
		}
	}
	if len(w.foreign) == 0 && !w.write.foreignLocked() {
		w.verifyDump(w.dumpWith(w.everyIndex()))
	}
}

// everyIndex are those that any process may have stored.
func (w *world) everyIndex() cache.Indexers {
	indexers := cache.Indexers{}
	for name := range randomIndices {
		indexers[name] = nil
	}
	return indexers
}

func (w *world) same(what string, got, want []string) {
	w.Helper()
	if (got == nil) != (want == nil) {
		w.Fatalf("%s: %#v, client-go has %#v", what, got, want)
	}
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		w.Fatalf("%s: %q, client-go has %q", what, got, want)
	}
}

func (w *world) sameObjects(what string, got, want []any) {
	w.Helper()
	if (got == nil) != (want == nil) || len(got) != len(want) {
		w.Fatalf("%s: %v, client-go has %v", what, got, want)
	}
	compare := func(a, b any) int { return strings.Compare(keyOf(a.(*corev1.Pod)), keyOf(b.(*corev1.Pod))) }
	slices.SortFunc(got, compare)
	slices.SortFunc(want, compare)
	for i := range got {
		if !equal(got[i], want[i]) {
			w.Fatalf("%s: %v, client-go has %v", what, got[i], want[i])
		}
	}
}

func (w *world) sameError(what string, got, want error) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("%s: error %v, client-go has %v", what, got, want)
	}
}
