package bolt

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/textlogger"
	testingclock "k8s.io/utils/clock/testing"
)

// TestScrubber_Finish_DiskCannotBeRead is no damage: it is said, and the scrub tries
// again soon instead of at the next pass.
func TestScrubber_Finish_DiskCannotBeRead(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	o, err := Options{Clock: clock, Logger: &logger}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	db := newDB(filepath.Join(t.TempDir(), "cache.db"), o)
	s := &db.scrub
	s.finish(10, false, fmt.Errorf("%w: page 7", errUnreadable))
	if wait := s.wait(clock.Now()); wait != scrubRetry {
		t.Errorf("tries again in %s, want %s", wait, scrubRetry)
	}
	if got := db.mu.scrub; got.Problems != 0 || got.Passes != 0 || got.Checked != 0 {
		t.Errorf("status %+v", got)
	}
	if !strings.Contains(log.String(), "page 7") {
		t.Errorf("log %q", log.String())
	}
}
