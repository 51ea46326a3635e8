package bolt

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/warmcache/warmcache/store"
)

// collectionChecker checks one collection: what is stored about it, what is
// there, and that the two agree.
type collectionChecker struct {
	*checker
	names bucketNames
	info  store.Info
	// totals and indices are what is stored, found what is there. totals is nil
	// if it cannot be read.
	totals  *totalsRecord
	found   totalsRecord
	indices map[string]indexTotals
	// objects has a hash of each key, sorted. An index entry of an object that
	// does not exist passes with a probability of n/2^64.
	objects []uint64
	seed    maphash.Seed
}

func newCollectionChecker(c *checker, id store.Identity) *collectionChecker {
	return &collectionChecker{
		checker: c, names: namesOf(id), info: store.Info{Identity: id},
		indices: map[string]indexTotals{}, seed: maphash.MakeSeed(),
	}
}

func (c *collectionChecker) run(header *bucket) error {
	for _, step := range []func() error{
		func() error { return c.in("header", func() error { return c.header(header) }) },
		func() error { return c.in("objects", c.objectBucket) },
		func() error { return c.in("departed records", c.departed) },
		c.indexBuckets,
		func() error { return c.in("totals", c.compare) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	c.report.Collections = append(c.report.Collections, c.info)
	return nil
}

// header reads what is stored about the collection.
func (c *collectionChecker) header(b *bucket) error {
	return c.entries(b, func(key, value []byte) (err error) {
		name, isIndex := strings.CutPrefix(string(key), indexTotalsPrefix)
		switch {
		case string(key) == string(headerKey):
			c.info.Header, err = decodeHeader(value)
		case string(key) == string(totalsKey):
			var totals totalsRecord
			if totals, err = decodeTotals(value); err == nil {
				c.totals, c.info.Totals, c.info.Departed = &totals, totals.objects, totals.departed.Count
			}
		case isIndex:
			if c.indices[name], err = decodeIndexTotals(value); err != nil {
				err = fmt.Errorf("index %q: %w", name, err)
			}
		default:
			err = damaged("unknown key %q", key)
		}
		if err != nil {
			return c.problem(err)
		}
		return nil
	})
}

func (c *collectionChecker) objectBucket() error {
	err := c.entries(c.take(c.names.objects), func(key, value []byte) error {
		c.found.objects.Add(string(key), value)
		c.objects = append(c.objects, maphash.Bytes(c.seed, key))
		if err := c.record(key, value); err != nil {
			return c.problemIn(fmt.Sprintf("object %q", key), err)
		}
		return nil
	})
	slices.Sort(c.objects)
	return err
}

// record verifies the record of an object.
func (c *collectionChecker) record(key, value []byte) error {
	if _, err := store.Unseal(value); err != nil {
		return err
	}
	if c.options.Record == nil {
		return nil
	}
	return c.options.Record(c.info.Identity, string(key), value)
}

func (c *collectionChecker) departed() error {
	return c.entries(c.take(c.names.departed), func(key, value []byte) error {
		c.found.departed.Add(string(key), value)
		record, err := decodeDeparted(key, value)
		if err == nil {
			err = c.record([]byte(record.Key), record.Value)
		}
		if err != nil {
			return c.problemIn(fmt.Sprintf("departed record %q", key), err)
		}
		return nil
	})
}

// indexBuckets checks every index that has a bucket, totals, or a place in the
// header. One that is not in the header may be there: it is being made.
func (c *collectionChecker) indexBuckets() error {
	left := map[string]bool{}
	for name := range c.info.Header.Indices {
		left[name] = true
	}
	for name := range c.indices {
		left[name] = true
	}
	for _, b := range c.withPrefix(c.names.indices) {
		name := strings.TrimPrefix(string(b.name), c.names.indices)
		delete(left, name)
		if err := c.in(fmt.Sprintf("index %q", name), func() error { return c.index(name, b) }); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if err := c.in(fmt.Sprintf("index %q", name), func() error { return c.compareIndex(name, indexTotals{}) }); err != nil {
			return err
		}
	}
	return nil
}

// index checks the entries of one index. Those of objects that do not exist are
// one problem, because damage of the objects can make it many.
func (c *collectionChecker) index(name string, b *bucket) error {
	var found indexTotals
	var orphans int
	var example string
	err := c.entries(b, func(entry, empty []byte) error {
		found.add(entry)
		value, key, err := splitPair(entry)
		if err == nil && len(empty) > 0 {
			err = damaged("entry (%q, %q) has a value", value, key)
		}
		if err != nil {
			return c.problem(err)
		}
		if !c.exists(key) {
			if orphans++; orphans == 1 {
				example = fmt.Sprintf("(%q, %q)", value, key)
			}
		}
		return nil
	})
	if err == nil && orphans > 0 {
		err = c.problem(damaged("%d entries belong to objects that do not exist, the first is %s", orphans, example))
	}
	if err != nil {
		return err
	}
	return c.compareIndex(name, found)
}

func (c *collectionChecker) exists(key []byte) bool {
	_, found := slices.BinarySearch(c.objects, maphash.Bytes(c.seed, key))
	return found
}

// compareIndex compares what is stored about an index with what is there.
func (c *collectionChecker) compareIndex(name string, found indexTotals) error {
	stored, ok := c.indices[name]
	switch {
	case !ok:
		return c.problem(damaged("it has no totals"))
	case stored != found:
		return c.problem(damaged("its totals are %+v, found %+v", stored, found))
	}
	return nil
}

// compare compares the other totals.
func (c *collectionChecker) compare() error {
	switch {
	case c.totals == nil:
		return c.problem(damaged("there are none"))
	case *c.totals != c.found:
		return c.problem(damaged("stored are %+v, found %+v", *c.totals, c.found))
	}
	return nil
}
