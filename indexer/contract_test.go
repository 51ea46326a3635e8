package indexer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/warmcache/warmcache/store/storetest"
)

// model compares an Indexer with client-go's under the same operations.
type model struct {
	*rapid.T
	got  *Indexer
	want cache.Indexer
	// process is set if got has a file.
	process *process
	// copies says that readers get objects that are equal to those written.
	copies bool
	rv     int
}

func TestIndexer_BehavesLikeClientGo(t *testing.T) {
	for name, residency := range map[string]Residency{"memory": -1, "file": Memory, "disk": Disk} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				m := &model{T: rt, want: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{"app": byApp})}
				m.got = New(Options{Indexers: cache.Indexers{"app": byApp}})
				if residency >= 0 {
					m.process, m.copies = start(t, storetest.NewMemory(), startOptions{residency: residency}), residency == Disk
					m.got = m.process.Indexer
				}
				rt.Repeat(map[string]func(*rapid.T){
					"Add":         func(*rapid.T) { m.one(cache.Indexer.Add, m.pod()) },
					"Update":      func(*rapid.T) { m.one(cache.Indexer.Update, m.pod()) },
					"Delete":      func(*rapid.T) { m.one(cache.Indexer.Delete, m.deletable()) },
					"Get":         func(*rapid.T) { m.get() },
					"no key":      func(*rapid.T) { m.withoutKey() },
					"Replace":     func(*rapid.T) { m.replace() },
					"Transaction": func(*rapid.T) { m.transaction() },
					"Bookmark":    func(*rapid.T) { m.bookmark() },
					"AddIndexers": func(*rapid.T) { m.addIndexers() },
					"":            func(*rapid.T) { m.compare() },
				})
			})
		})
	}
}

// nextRV returns a version that is new, or, as after a restore of the server, one
// that is not, or none.
func (m *model) nextRV() string {
	m.rv++
	return rapid.SampledFrom([]string{strconv.Itoa(m.rv), strconv.Itoa(m.rv), "3", ""}).Draw(m.T, "version")
}

func (m *model) pod() *corev1.Pod {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(m.T, "name")
	apps := rapid.SampledFrom([]string{"", "x", "y", "x,y", "y,y", ",x", "n\x00/ü,x"}).Draw(m.T, "apps")
	p := pod(name, m.nextRV(), apps)
	p.Namespace = rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(m.T, "namespace")
	return p
}

// deletable returns any form in which an object may be deleted.
func (m *model) deletable() any {
	p := m.pod()
	key, _ := cache.MetaNamespaceKeyFunc(p)
	return rapid.SampledFrom([]any{
		p, cache.DeletedFinalStateUnknown{Key: key, Obj: p}, cache.DeletedFinalStateUnknown{Key: key}, cache.ExplicitKey(key),
	}).Draw(m.T, "form")
}

func (m *model) one(op func(cache.Indexer, any) error, obj any) {
	if got, want := op(m.got, obj), op(m.want, obj); got != nil || want != nil {
		m.Fatalf("got error %v, client-go has %v", got, want)
	}
}

// get asks in any form, for what is there or not.
func (m *model) get() {
	obj := m.deletable()
	got, gotExists, gotErr := m.got.Get(obj)
	want, wantExists, wantErr := m.want.Get(obj)
	if !m.equal(got, want) || gotExists != wantExists || gotErr != nil || wantErr != nil {
		m.Fatalf("Get(%v): got %v, %t, %v; client-go has %v, %t, %v", obj, got, gotExists, gotErr, want, wantExists, wantErr)
	}
}

func (m *model) withoutKey() {
	for name, op := range map[string]func(cache.Indexer) error{
		"Add":     func(i cache.Indexer) error { return i.Add("text") },
		"Update":  func(i cache.Indexer) error { return i.Update(nil) },
		"Delete":  func(i cache.Indexer) error { return i.Delete("text") },
		"Replace": func(i cache.Indexer) error { return i.Replace([]any{pod("z", "1", ""), "text"}, "7") },
		"Get":     func(i cache.Indexer) error { _, _, err := i.Get("text"); return err },
	} {
		if got, want := op(m.got), op(m.want); fmt.Sprint(got) != fmt.Sprint(want) || got == nil {
			m.Fatalf("%s: got error %v, client-go has %v", name, got, want)
		}
	}
}

func (m *model) replace() {
	var list []any
	for range rapid.IntRange(0, 5).Draw(m.T, "objects") {
		list = append(list, m.pod())
	}
	rv := m.nextRV()
	if got, want := m.got.Replace(slices.Clone(list), rv), m.want.Replace(list, rv); got != nil || want != nil {
		m.Fatalf("got error %v, client-go has %v", got, want)
	}
}

func (m *model) transaction() {
	var txns []cache.Transaction
	for range rapid.IntRange(0, 5).Draw(m.T, "transactions") {
		switch rapid.IntRange(0, 3).Draw(m.T, "type") {
		case 0:
			txns = append(txns, cache.Transaction{Type: cache.TransactionTypeAdd, Object: m.pod()})
		case 1:
			txns = append(txns, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: m.pod()})
		case 2:
			txns = append(txns, cache.Transaction{Type: cache.TransactionTypeDelete, Object: m.deletable()})
		case 3:
			txns = append(txns, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: "text"})
		}
	}
	got, want := m.got.Transaction(txns...), m.want.(cache.TransactionStore).Transaction(txns...)
	if (got == nil) != (want == nil) {
		m.Fatalf("got error %v, client-go has %v", got, want)
	}
	if got != nil && (got.Error() != want.Error() || !reflect.DeepEqual(got.SuccessfulIndices, want.SuccessfulIndices)) {
		m.Fatalf("got error %v for all but %#v, client-go has %v for all but %#v",
			got, got.SuccessfulIndices, want, want.SuccessfulIndices)
	}
}

func (m *model) bookmark() {
	rv := m.nextRV()
	m.got.Bookmark(rv)
	m.want.Bookmark(rv)
}

func (m *model) addIndexers() {
	indexers := cache.Indexers{}
	for name, fn := range allIndexers {
		if rapid.Bool().Draw(m.T, name) {
			indexers[name] = fn
		}
	}
	if got, want := m.got.AddIndexers(maps.Clone(indexers)), m.want.AddIndexers(indexers); (got == nil) != (want == nil) {
		m.Fatalf("got error %v, client-go has %v", got, want)
	}
}

func (m *model) compare() {
	if got, want := m.got.LastStoreSyncResourceVersion(), m.want.LastStoreSyncResourceVersion(); got != want {
		m.Fatalf("version %q, client-go has %q", got, want)
	}
	m.same("ListKeys", m.got.ListKeys(), m.want.ListKeys())
	m.sameObjects("List", m.got.List(), m.want.List())
	for _, key := range append(m.want.ListKeys(), "absent") {
		got, gotExists, gotErr := m.got.GetByKey(key)
		want, wantExists, wantErr := m.want.GetByKey(key)
		if !m.equal(got, want) || gotExists != wantExists || gotErr != nil || wantErr != nil {
			m.Fatalf("GetByKey(%q): got %v, client-go has %v", key, got, want)
		}
		if want == nil {
			continue
		}
		if got, exists, err := m.got.Get(want); !m.equal(got, want) || !exists || err != nil {
			m.Fatalf("Get(%q): %v, %t, %v", key, got, exists, err)
		}
	}
	m.same("GetIndexers", slices.Collect(maps.Keys(m.got.GetIndexers())), slices.Collect(maps.Keys(m.want.GetIndexers())))
	for _, name := range append(slices.Collect(maps.Keys(allIndexers)), "absent") {
		m.compareIndex(name)
	}
	if m.process != nil {
		m.process.verify()
	}
}

func (m *model) compareIndex(name string) {
	m.same(name, m.got.ListIndexFuncValues(name), m.want.ListIndexFuncValues(name))
	for _, value := range append(m.want.ListIndexFuncValues(name), "absent") {
		gotKeys, gotErr := m.got.IndexKeys(name, value)
		wantKeys, wantErr := m.want.IndexKeys(name, value)
		m.sameError(name, gotErr, wantErr)
		if !slices.Equal(gotKeys, wantKeys) {
			m.Fatalf("IndexKeys(%s, %s): got %v, client-go has %v", name, value, gotKeys, wantKeys)
		}
		got, gotErr := m.got.ByIndex(name, value)
		want, wantErr := m.want.ByIndex(name, value)
		m.sameError(name, gotErr, wantErr)
		m.sameObjects(name, got, want)
	}
	for _, apps := range []string{"x,y", "x", "", "absent"} {
		p := pod("query", "0", apps)
		got, gotErr := m.got.Index(name, p)
		want, wantErr := m.want.Index(name, p)
		m.sameError(name, gotErr, wantErr)
		m.sameObjects(name, got, want)
	}
}

// sameObjects compares the objects themselves, in any order, and nil with empty.
func (m *model) sameObjects(what string, got, want []any) {
	if (got == nil) != (want == nil) {
		m.Fatalf("%s: got %#v, client-go has %#v", what, got, want)
	}
	m.same(what, keys(got), keys(want))
	for _, obj := range got {
		if !slices.ContainsFunc(want, func(w any) bool { return m.equal(obj, w) }) {
			m.Fatalf("%s: got a copy of %v", what, obj)
		}
	}
}

// equal says whether both are the same object, or equal if readers get copies.
func (m *model) equal(got, want any) bool {
	return got == want || m.copies && reflect.DeepEqual(got, want)
}

func (m *model) same(what string, got, want []string) {
	if (got == nil) != (want == nil) {
		m.Fatalf("%s: got %#v, client-go has %#v", what, got, want)
	}
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		m.Fatalf("%s: got %q, client-go has %q", what, got, want)
	}
}

func (m *model) sameError(what string, got, want error) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		m.Fatalf("%s: got error %v, client-go has %v", what, got, want)
	}
}

func keys(objs []any) []string {
	keys := make([]string, len(objs))
	for i, obj := range objs {
		keys[i], _ = cache.MetaNamespaceKeyFunc(obj)
	}
	return keys
}
