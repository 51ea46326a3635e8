package indexer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
	"github.com/warmcache/warmcache/store/storetest"
)

// Objects of this test come in groups, and an update changes a whole group. Its
// versions are 1, 2, 3 and so on, and in every fifth it does not exist.
const (
	groups, perGroup = 6, 5
	absentEvery      = 5
)

// history is all that the writer is going to do, so that readers can look up what was
// true when: after[n] has the version of each group after the first n updates.
type history struct {
	after [][groups]int
	// begun and ended are how many updates have begun and ended.
	begun, ended atomic.Int64
}

func newHistory(updates int, random *rand.Rand) *history {
	h := &history{after: make([][groups]int, updates+1)}
	for n := 1; n <= updates; n++ {
		h.after[n] = h.after[n-1]
		h.after[n][random.IntN(groups)]++
	}
	return h
}

// living returns a version, or 0 if the group does not exist in it.
func living(version int) int {
	if version%absentEvery == 0 {
		return 0
	}
	return version
}

func memberKey(group, member int) string { return fmt.Sprintf("ns-%d/group-%d", member, group) }

func memberOf(group, member, version int) *corev1.Pod {
	p := pod(fmt.Sprint("group-", group), strconv.Itoa(version), fmt.Sprint("group-", group))
	p.Namespace, p.Spec.NodeName = fmt.Sprint("ns-", member), stateOf(version)
	return p
}

// stateOf is what the index "node" knows a version by.
func stateOf(version int) string { return fmt.Sprint("state-", version%3) }

func changesOf(group, version int) (changes []Change) {
	for member := range perGroup {
		c := Change{Key: memberKey(group, member)}
		if living(version) > 0 {
			c.Object = memberOf(group, member, version)
		}
		changes = append(changes, c)
	}
	return changes
}

// TestIndexer_ReadsAreLinearisable has one writer and many readers, and looks for a
// moment at which each result was all of the truth: not before what the writer had
// ended when the read began, nor after what he had begun when it ended, nor before
// the moment of an earlier read by the same reader.
func TestIndexer_ReadsAreLinearisable(t *testing.T) {
	updates := 600
	if testing.Short() {
		updates = 150
	}
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return storetest.NewMemory().Open() },
		"bolt": func(t *testing.T) store.Store {
			return bolttest.Open(t, filepath.Join(t.TempDir(), "cache.db"), bolt.Options{FlushInterval: time.Millisecond, MaxDirty: 50})
		},
	} {
		for _, o := range []startOptions{{residency: Memory}, {residency: Disk, budget: 4000}, {residency: Disk, budget: 1 << 20}} {
			t.Run(fmt.Sprint(name, " ", o.residency, " ", o.budget), func(t *testing.T) {
				seed := rand.Uint64()
				if *seedFlag != 0 {
					seed = *seedFlag
				}
				t.Logf("seed %d", seed)
				o.indexers = allIndexers
				linearisable(t, startOn(t, open(t), o), newHistory(updates, rand.New(rand.NewPCG(seed, 0))), seed)
			})
		}
	}
}

func linearisable(t *testing.T, p *process, h *history, seed uint64) {
	p.list("0")
	stop := make(chan struct{})
	var reads atomic.Int64
	var wg sync.WaitGroup
	for n := range 4 {
		r := &historyReader{T: t, Rand: rand.New(rand.NewPCG(seed, uint64(n+1))), process: p, history: h}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !r.read() {
					return
				}
				reads.Add(1)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 1<<32))
	for n := 1; n < len(h.after) && !t.Failed(); n++ {
		h.begun.Add(1)
		write(p, h, n, random)
		h.ended.Add(1)
		for wanted := int64(n); reads.Load() < wanted && !t.Failed(); { // or the writer is done before anybody reads
			runtime.Gosched()
		}
	}
	close(stop)
	wg.Wait()
	stats := p.CacheStats()
	t.Logf("%d reads, %+v", reads.Load(), stats)
	if p.Residency() == Disk && (stats.Hits == 0 || stats.Misses == 0) {
		t.Error("the cache was not used")
	}
	p.verify()
	if err := p.Detach(); err != nil {
		t.Error(err)
	}
}

// write makes the n-th update, in one of the ways there are.
func write(p *process, h *history, n int, random *rand.Rand) {
	group := 0
	for h.after[n][group] == h.after[n-1][group] {
		group++
	}
	changes := changesOf(group, h.after[n][group])
	rv := strconv.Itoa(n)
	switch random.IntN(4) {
	case 0:
		var txns []cache.Transaction
		for _, c := range changes {
			t := cache.Transaction{Type: cache.TransactionTypeUpdate, Object: c.Object}
			if c.Object == nil {
				t = cache.Transaction{Type: cache.TransactionTypeDelete, Object: cache.ExplicitKey(c.Key)}
			}
			txns = append(txns, t)
		}
		if err := p.Transaction(txns...); err != nil {
			p.Error(err)
		}
	case 1:
		var list []any
		for group, version := range h.after[n] {
			for _, c := range changesOf(group, version) {
				if c.Object != nil {
					list = append(list, c.Object)
				}
			}
		}
		if err := p.Replace(list, rv); err != nil {
			p.Error(err)
		}
	case 2:
		p.apply(Update{Incomplete: true, Changes: changes})
	default:
		p.apply(Update{RV: rv, Complete: random.IntN(2) == 0, Changes: departing(changes...)})
	}
}

// historyReader is one reader, which knows the earliest moment of its last read.
type historyReader struct {
	*testing.T
	*rand.Rand
	*process
	*history
	last int
}

// read asks one question, and says whether to go on.
func (r *historyReader) read() bool {
	from := max(r.last, int(r.ended.Load()))
	what, holds := r.ask()
	to := int(r.begun.Load())
	for n := from; n <= to; n++ {
		if holds(r.after[n]) {
			r.last = n
			return true
		}
	}
	r.T.Errorf("%s was not true between update %d, %v, and %d, %v", what, from, r.after[from], to, r.after[to])
	return false
}

// ask returns what was read, and whether it is true after some update.
func (r *historyReader) ask() (what string, holds func([groups]int) bool) {
	group, member := r.IntN(groups), r.IntN(perGroup)
	state := stateOf(r.IntN(3))
	inGroup := func(_ [groups]int, g int) bool { return g == group }
	inState := func(now [groups]int, g int) bool { return stateOf(now[g]) == state }
	all := func([groups]int, int) bool { return true }
	switch r.IntN(10) {
	case 0, 1, 2:
		obj, _, err := r.GetByKey(memberKey(group, member))
		r.must(err)
		got := 0
		if obj != nil {
			got = versionNumber(obj)
		}
		return fmt.Sprintf("version %d of %s", got, memberKey(group, member)), func(now [groups]int) bool { return living(now[group]) == got }
	case 3:
		return versionsHold("List", r.List(), all)
	case 4:
		objs, err := r.ByIndex("app", fmt.Sprint("group-", group))
		r.must(err)
		return versionsHold(fmt.Sprint("ByIndex of group ", group), objs, inGroup)
	case 5:
		objs, err := r.ByIndex("node", state)
		r.must(err)
		return versionsHold("ByIndex of "+state, objs, inState)
	case 6:
		keys, err := r.IndexKeys("node", state)
		r.must(err)
		return keysHold("IndexKeys of "+state, keys, inState)
	case 7:
		return keysHold("ListKeys", r.ListKeys(), all)
	case 8:
		return valuesHold(r.ListIndexFuncValues("node"))
	}
	if r.Residency() == Memory {
		return versionsHold("List", r.List(), all)
	}
	c, err := r.Chunk("")
	r.must(err)
	objs := make([]any, c.Len())
	for n := range objs {
		objs[n], err = c.Object(n)
		r.must(err)
	}
	return versionsHold("Chunk", objs, all)
}

func (r *historyReader) must(err error) {
	if err != nil {
		r.T.Error(err)
	}
}

func versionNumber(obj any) int {
	n, _ := strconv.Atoi(versionOf(obj))
	return n
}

// versionsHold returns what says whether objects are all members, in the right version,
// of those groups that are in.
func versionsHold(what string, objs []any, in func([groups]int, int) bool) (string, func([groups]int) bool) {
	got := map[string]int{}
	for _, obj := range objs {
		got[keyOf(obj.(*corev1.Pod))] = versionNumber(obj)
	}
	if len(got) < len(objs) {
		what += " with a key twice"
	}
	return fmt.Sprint(what, ": ", got), func(now [groups]int) bool {
		want := map[string]int{}
		for group := range groups {
			for member := range perGroup {
				if v := living(now[group]); v > 0 && in(now, group) {
					want[memberKey(group, member)] = v
				}
			}
		}
		return maps.Equal(got, want) && len(got) == len(objs)
	}
}

func keysHold(what string, keys []string, in func([groups]int, int) bool) (string, func([groups]int) bool) {
	got := slices.Sorted(slices.Values(keys))
	return fmt.Sprint(what, ": ", got), func(now [groups]int) bool {
		var want []string
		for group := range groups {
			for member := range perGroup {
				if living(now[group]) > 0 && in(now, group) {
					want = append(want, memberKey(group, member))
				}
			}
		}
		slices.Sort(want)
		return slices.Equal(got, want)
	}
}

func valuesHold(values []string) (string, func([groups]int) bool) {
	got := strings.Join(slices.Sorted(slices.Values(values)), " ")
	return "values " + got, func(now [groups]int) bool {
		want := map[string]bool{}
		for _, version := range now {
			if living(version) > 0 {
				want[stateOf(version)] = true
			}
		}
		return got == strings.Join(slices.Sorted(maps.Keys(want)), " ")
	}
}
