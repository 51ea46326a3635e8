package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/warmcache/warmcache/store"
	"github.com/warmcache/warmcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memoryHarness(*testing.T) storetest.Harness {
	m := storetest.NewMemory()
	return storetest.Harness{Open: func(testing.TB) store.Store { return m.Open() }}
}

func TestMemory_Conformance(t *testing.T) { storetest.Run(t, memoryHarness) }

func TestMemory_Model(t *testing.T) { storetest.RunModel(t, memoryHarness(t), 300) }

func TestMemory_Open_KillsTheStoreBefore(t *testing.T) {
	m := storetest.NewMemory()
	first := m.Open()
	c, err := first.Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(store.Batch{Ops: []store.Op{storetest.Put("a", "1")}}); err != nil {
		t.Fatal(err)
	}
	second, err := m.Open().Collection(storetest.Pods(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := storetest.Dump(t, second).Objects; len(got) != 1 {
		t.Errorf("after a restart: %v", got)
	}
	if err := c.Apply(store.Batch{Ops: []store.Op{storetest.Put("b", "1")}}); err == nil {
		t.Error("the killed process goes on writing")
	}
}
