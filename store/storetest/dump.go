package storetest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmcache/warmcache/store"
)

// Contents is everything that one View of a collection shows, in the order in
// which it shows it.
type Contents struct {
	// Header is nil if the collection has none.
	Header *store.Header
	// Objects are keys and records in Scan order.
	Objects []Entry
	// Indices has the values of each index that was asked for, in order.
	Indices map[string][]IndexValue
	// Departed are the departed records.
	Departed []store.Departed
	// Scanned are the totals of Objects.
	Scanned store.Totals
}

// Entry is one object.
type Entry struct{ Key, Value string }

// IndexValue is one value of an index with its keys, in order.
type IndexValue struct {
	Value string
	Keys  []string
}

// Dump reads everything in a collection in one View; indices names the indices
// to read. It fails the test if anything cannot be read, if Get disagrees with
// Scan, or if a Since is not a plausible time in UTC.
func Dump(t testing.TB, c store.Collection, indices ...string) Contents {
	t.Helper()
	var contents Contents
	err := c.View(func(tx store.Tx) error {
		var err error
		contents, err = DumpTx(tx, indices...)
		return err
	})
	if err != nil {
		t.Fatalf("View: %v", err)
	}
	return contents
}

// DumpTx is Dump within a View.
func DumpTx(tx store.Tx, indices ...string) (Contents, error) {
	var contents Contents
	header, err := tx.Header()
	switch {
	case err == nil:
		contents.Header = &header
	case !errors.Is(err, store.ErrNotFound):
		return contents, err
	}
	if err := contents.dumpObjects(tx); err != nil {
		return contents, err
	}
	for _, name := range indices {
		if err := contents.dumpIndex(tx, name); err != nil {
			return contents, err
		}
	}
	return contents, contents.dumpDeparted(tx)
}

func (c *Contents) dumpObjects(tx store.Tx) error {
	err := tx.Scan("", func(key, value []byte) bool {
		c.Objects = append(c.Objects, Entry{string(key), string(value)})
		c.Scanned.Add(string(key), value)
		return true
	})
	if err != nil {
		return err
	}
	for _, o := range c.Objects {
		value, err := tx.Get(o.Key)
		if err != nil {
			return err
		}
		if string(value) != o.Value {
			return errors.New("Get and Scan disagree about " + o.Key)
		}
	}
	return nil
}

func (c *Contents) dumpIndex(tx store.Tx, name string) error {
	var values []IndexValue
	err := tx.IndexValues(name, "", func(value []byte) bool {
		values = append(values, IndexValue{Value: string(value)})
		return true
	})
	if err != nil {
		return err
	}
	for i := range values {
		err := tx.IndexKeys(name, values[i].Value, "", func(key []byte) bool {
			values[i].Keys = append(values[i].Keys, string(key))
			return true
		})
		if err != nil {
			return err
		}
	}
	if len(values) > 0 {
		if c.Indices == nil {
			c.Indices = map[string][]IndexValue{}
		}
		c.Indices[name] = values
	}
	return nil
}

func (c *Contents) dumpDeparted(tx store.Tx) error {
	var invalid error
	err := tx.Departed(func(d store.Departed) bool {
		if d.Since.IsZero() || d.Since.Location().String() != "UTC" {
			invalid = errors.New("departed record of " + d.Key + " has no time in UTC")
		}
		d.Value = slices.Clone(d.Value)
		c.Departed = append(c.Departed, d)
		return true
	})
	return errors.Join(err, invalid)
}

// Diff explains how the contents of two collections differ; empty if they do
// not. The times of departed records are not compared, because two engines have
// two clocks.
func Diff(want, got Contents) string {
	return cmp.Diff(want, got,
		cmpopts.IgnoreFields(store.Departed{}, "Since"),
		// Element by element, large records take seconds.
		cmp.Comparer(bytes.Equal))
}
