package objectcache

import (
	"testing"
)

// set writes one value.
func set(c *Cache[int], key string, value int, size int64, write uint64) {
	c.Begin([]string{key})
	c.End([]string{key}, []Written[int]{{Key: key, Value: value, Size: size, Wanted: true}}, write)
}

func wantGet(t *testing.T, c *Cache[int], key string, want int) {
	t.Helper()
	if got, ok := c.Get(key); !ok || got != want {
		t.Errorf("Get(%s) is %d, %t; want %d", key, got, ok, want)
	}
}

func wantNone(t *testing.T, c *Cache[int], key string) {
	t.Helper()
	if got, ok := c.Get(key); ok {
		t.Errorf("Get(%s) is %d, want nothing", key, got)
	}
}

func TestCache_OversizeValuesAreNotKept(t *testing.T) {
	const budget = 1000
	fits := int64(budget - entryOverhead - len("a"))
	c := New[int](budget)
	set(c, "a", 1, fits, 1)
	wantGet(t, c, "a", 1)
	set(c, "a", 2, fits+1, 2)
	wantNone(t, c, "a") // and not the older value either
	c.Fill(c.Ticket(), "a", 2, fits+1, 2)
	wantNone(t, c, "a")
	set(c, "b", 3, 10, 3)
	set(c, "a", 4, 10, 4)
	set(c, "a", 5, fits+1, 5)
	set(c, "c", 6, fits+1, 6)
	if s := c.Stats(); s.Objects != 1 || s.Evictions != 0 {
		t.Errorf("what is not kept has pushed something out: %+v", s)
	}
	wantGet(t, c, "b", 3)
	verify(t, c)
}

func TestCache_WithoutBudget(t *testing.T) {
	c := New[int](0)
	set(c, "a", 1, 0, 1)
	c.Fill(c.Ticket(), "b", 1, 0, 1)
	wantNone(t, c, "a")
	wantNone(t, c, "b")
	verify(t, c)
}

// What a watch brings is wanted; what a list brings only replaces what was there.
func TestCache_UnwantedValuesOnlyReplace(t *testing.T) {
	c := New[int](10_000)
	set(c, "kept", 1, 10, 1)
	keys := []string{"kept", "new"}
	c.Begin(keys)
	c.End(keys, []Written[int]{{Key: "kept", Value: 2, Size: 10}, {Key: "new", Value: 2, Size: 10}}, 2)
	wantGet(t, c, "kept", 2)
	wantNone(t, c, "new")
}

func TestCache_BetweenBeginAndEnd(t *testing.T) {
	c := New[int](10_000)
	set(c, "a", 1, 10, 1)
	set(c, "b", 1, 10, 1)
	before := c.Ticket()
	c.Begin([]string{"a"})
	wantNone(t, c, "a")
	wantGet(t, c, "b", 1)
	if _, ok := c.AsOf([]byte("a"), 1); ok || c.Contains("a") {
		t.Error("a value that is about to change is served")
	}
	for _, ticket := range []Ticket{before, c.Ticket()} {
		c.Fill(ticket, "c", 1, 10, 1)
		wantNone(t, c, "c")
	}
	during := c.Ticket()
	c.End([]string{"a"}, []Written[int]{{Key: "a", Value: 2, Size: 10}}, 2)
	for _, ticket := range []Ticket{before, during} {
		c.Fill(ticket, "c", 1, 10, 1)
		wantNone(t, c, "c")
	}
	wantGet(t, c, "a", 2)
	c.Fill(c.Ticket(), "c", 1, 10, 2)
	wantGet(t, c, "c", 1)
}

// A write that the store has refused leaves nothing that might be wrong.
func TestCache_EndOfARefusedWrite(t *testing.T) {
	c := New[int](10_000)
	set(c, "a", 1, 10, 1)
	set(c, "b", 1, 10, 1)
	c.Begin([]string{"a", "absent"})
	c.End([]string{"a", "absent"}, nil, 0)
	wantNone(t, c, "a")
	wantGet(t, c, "b", 1)
	c.Fill(c.Ticket(), "a", 1, 10, 1)
	wantGet(t, c, "a", 1)
}

func TestCache_AsOf(t *testing.T) {
	c := New[int](10_000)
	set(c, "a", 1, 10, 5)
	for write, want := range map[uint64]bool{4: false, 5: true, 6: true} {
		if got, ok := c.AsOf([]byte("a"), write); ok != want || ok && got != 1 {
			t.Errorf("as of write %d: %d, %t", write, got, ok)
		}
	}
	if s := c.Stats(); s.Hits+s.Misses != 0 {
		t.Errorf("it counts: %+v", s)
	}
	if c.mu.entries["a"].hits.Load() > 0 {
		t.Error("it says that the value is wanted")
	}
}

// One batch may change a key several times.
func TestCache_LastChangeOfAKeyCounts(t *testing.T) {
	c := New[int](10_000)
	keys := []string{"a", "a", "b", "b"}
	c.Begin(keys)
	c.End(keys, []Written[int]{
		{Key: "a", Value: 1, Size: 10, Wanted: true},
		{Key: "a", Gone: true, Wanted: true},
		{Key: "b", Gone: true, Wanted: true},
		{Key: "b", Value: 2, Size: 10, Wanted: true},
	}, 1)
	wantNone(t, c, "a")
	wantGet(t, c, "b", 2)
	verify(t, c)
}

// While everything is being removed, nothing of it is served, and what was read
// before is not kept.
func TestCache_BeginAll(t *testing.T) {
	c := New[int](10_000)
	set(c, "a", 1, 10, 1)
	before := c.Ticket()
	c.BeginAll()
	wantNone(t, c, "a")
	c.Fill(c.Ticket(), "a", 1, 10, 1)
	c.Fill(before, "a", 1, 10, 1)
	wantNone(t, c, "a")
	c.End(nil, nil, 2)
	c.Fill(before, "a", 1, 10, 1)
	wantNone(t, c, "a")
	if s := c.Stats(); s.Objects != 0 || s.Bytes != 0 || s.Evictions != 0 {
		t.Errorf("%+v", s)
	}
	set(c, "a", 2, 10, 3)
	wantGet(t, c, "a", 2)
	verify(t, c)
}
