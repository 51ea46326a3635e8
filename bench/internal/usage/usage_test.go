package usage

import (
	"runtime"
	"testing"
	"time"
)

// block is more than anything else in the test process has.
const block = 64 << 20

// touched returns memory that physically exists.
func touched() []byte {
	b := make([]byte, block)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func settled(t *testing.T) Memory {
	t.Helper()
	m, err := Settled()
	return must(t, m, err)
}

func TestSettled_SeesWhatIsInUse(t *testing.T) {
	before := settled(t)
	b := touched()
	during := settled(t)
	runtime.KeepAlive(b)
	after := settled(t)
	if during.Heap < before.Heap+block || during.Live < before.Live+block || during.Anon < before.Anon+block {
		t.Errorf("before a block of %d bytes: %+v, with it: %+v", block, before, during)
	}
	if after.Heap > during.Heap-block/2 || after.Live > during.Live-block/2 {
		t.Errorf("with a block of %d bytes: %+v, after it: %+v", block, during, after)
	}
}

func TestPeak_TakesALastSampleAndBeginsAnew(t *testing.T) {
	settled(t)
	p := Watch(time.Hour) // no tick comes
	defer p.Stop()
	first, err := p.Take()
	must(t, first, err)
	b := touched()
	high, err := p.Take()
	must(t, high, err)
	runtime.KeepAlive(b)
	settled(t)
	low, err := p.Take()
	must(t, low, err)
	if high.Heap < first.Heap+block || low.Heap > high.Heap-block/2 {
		t.Errorf("without, with and without a block of %d bytes: %+v, %+v, %+v", block, first, high, low)
	}
}

func TestCPU_Grows(t *testing.T) {
	before, err := CPU()
	must(t, before, err)
	for after := before; after <= before; {
		after, err = CPU()
		must(t, after, err)
	}
}
