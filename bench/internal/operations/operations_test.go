package operations

import (
	"flag"
	"strings"
	"testing"
)

// many is the size of the large file.
var many = flag.Int("many", DefaultSizes.Many, "pods in the large file")

func newFixture(tb testing.TB, s Sizes) *Fixture {
	tb.Helper()
	f, err := New(tb.TempDir(), s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

// BenchmarkOperations is for benchstat. What an operation is compared with comes
// after it, once for each.
func BenchmarkOperations(b *testing.B) {
	sizes := DefaultSizes
	sizes.Many = *many
	for _, o := range newFixture(b, sizes).Operations() {
		name := o.Subject + "/" + strings.ReplaceAll(o.Name, " ", "_")
		b.Run(name, o.Run)
		if o.Baseline != nil {
			b.Run(name+"/against/"+strings.ReplaceAll(o.Against, " ", "_"), o.Baseline)
		}
	}
}

// TestOperations_FindWhatTheyAskFor runs each a few times.
func TestOperations_FindWhatTheyAskFor(t *testing.T) {
	if err := setBenchtime("3x"); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, Sizes{Few: 100, Many: 500, Memory: 100, Decoded: 50})
	for _, o := range f.Operations() {
		if _, err := measure(o.Run); err != nil {
			t.Errorf("%s, %s: %v", o.Name, o.Subject, err)
		}
		if o.Baseline == nil {
			continue
		}
		if _, err := measure(o.Baseline); err != nil {
			t.Errorf("%s, %s: %v", o.Name, o.Against, err)
		}
	}
}
