package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/audit"
)

// Audit configures how an informer is compared with the server while it runs; see
// package audit. The zero value does not.
type Audit struct {
	// Period is the time from one audit to the next, give or take a tenth. The first
	// comes at a random time within a period: programs that are started together do
	// not list together. 0 is never.
	Period time.Duration
	// Rate is how many objects a second are listed; 0 means audit.DefaultRate.
	Rate int
}

// AuditStatus says what came of the audits of an informer. Counts begin at zero with the
// process.
type AuditStatus struct {
	// Last is the report of the last audit that has ended; zero before.
	Last audit.Report
	// Runs counts audits by their results.
	Runs map[audit.Result]int
	// Objects counts what was listed for them; Missing, Extra and Different what they
	// have found, as in audit.Report.
	Objects, Missing, Extra, Different int
	// Succeeded is when the last audit ended that has verified everything, or whose
	// differences were repaired; zero if none has.
	Succeeded time.Time
}

const (
	// auditPatience is how long an audit waits for the cache to reach a version of the
	// server. Bookmarks come about once a minute.
	auditPatience = 3 * time.Minute
	// repairPatience is how long it waits for the list that it has asked for.
	repairPatience = 10 * time.Minute
)

// errDiffers is wrapped by the error with which the pump asks for a list because of an
// audit.
var errDiffers = errors.New("the audit has found that the cache differs from the server")

// auditPeriodically audits until ctx ends.
func (i *sharedIndexInformer) auditPeriodically(ctx context.Context) {
	period := i.options.Audit.Period
	pause := rand.N(period)
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.clock.After(pause):
		}
		pause = period - period/10 + rand.N(period/5+1)
		if i.isConfirmed() { // else the start is the audit
			i.auditOnce(ctx)
		}
	}
}

// auditOnce compares everything with the server, and has differences repaired.
func (i *sharedIndexInformer) auditOnce(ctx context.Context) {
	i.witness.begin()
	defer i.witness.end()
	local := &audited{informer: i}
	i.lifecycle.Lock()
	transformed := i.lifecycle.transform != nil
	i.lifecycle.Unlock()
	report := audit.Run(ctx, audit.Options{
		Lister: i.options.Metadata, Local: local, Transformed: transformed,
		Rate: i.options.Audit.Rate, Clock: i.clock,
	})
	if report.NeedsList() && ctx.Err() == nil {
		i.repair(ctx, &report, local)
	}
	if ctx.Err() != nil {
		return // it was not the audit that failed
	}
	report.Finished = i.clock.Now()
	i.witness.conclude(report)
	logger := klog.FromContext(ctx)
	if report.Result() == audit.Failed {
		logger.Info("Warning: the audit did not come to its end", "informer", i.name(), "report", report, "err", report.Err)
		return
	}
	if report.Result() == audit.Verified {
		logger = logger.V(2)
	}
	logger.Info("Audited", "informer", i.name(), "result", report.Result(), "report", report, "newer", report.Newer,
		"duration", report.Finished.Sub(report.Started).Round(time.Millisecond))
}

// repair has everything listed and reconciled, which makes deltas of what differs, and
// waits until that has been applied.
func (i *sharedIndexInformer) repair(ctx context.Context, report *audit.Report, local audit.Local) {
	if report.Recurs(i.witness.status().Last) {
		report.Err = audit.ErrUnrepaired
		return
	}
	logger := klog.FromContext(ctx)
	if report.Err != nil {
		logger = klog.LoggerWithValues(logger, "err", report.Err)
	}
	logger.Info("Warning: the cache differs from the server; listing", "informer", i.name(),
		"report", *report, "keys", report.Examples)
	if err := i.awaitList(ctx, repairOf(*report)); err != nil {
		report.Err = fmt.Errorf("the list that repairs was not applied within %s: %w", repairPatience, err)
		return
	}
	remains, err := report.Remains(local)
	switch {
	case err != nil:
		report.Err = err
	case remains:
		report.Err = audit.ErrUnrepaired
	default:
		report.Repaired = true
	}
}

// awaitList has everything listed and applied, whatever its version. A list that has begun
// by itself meanwhile may be one that reads only objects of other versions.
func (i *sharedIndexInformer) awaitList(ctx context.Context, why error) error {
	patience := i.clock.After(repairPatience)
	for {
		sparse := i.start.reflector.Status().SparseLists
		i.witness.request(why)
		i.lifecycle.queue.Wake()
		err := i.witness.await(ctx, patience, (*witnessed).repaired)
		if err != nil || i.start.reflector.Status().SparseLists == sparse {
			return err
		}
	}
}

func repairOf(r audit.Report) error {
	if r.Differences() == 0 {
		return fmt.Errorf("%w: %w", errDiffers, r.Err)
	}
	return fmt.Errorf("%w: %s", errDiffers, r)
}

// audited is the cache of an informer as an audit sees it.
type audited struct {
	informer *sharedIndexInformer
	// keys are those in memory when they were first asked for, in order. What has
	// come since is listed by the server, or newer.
	keys []string
}

var _ audit.Local = &audited{}

// Version implements audit.Local.
func (a *audited) Version() string { return a.informer.witness.version() }

// Settled implements audit.Local.
func (a *audited) Settled(ctx context.Context) (lists uint64, err error) {
	i := a.informer
	err = i.witness.await(ctx, i.clock.After(auditPatience), func(w *witnessed) bool {
		lists = w.lists
		return !w.listing && i.indexer.ReadErr() == nil
	})
	if errors.Is(err, errPatience) {
		err = fmt.Errorf("%w for longer than %s", audit.ErrUnsettled, auditPatience)
	}
	return lists, err
}

// Reached implements audit.Local.
func (a *audited) Reached(ctx context.Context, rv string) error {
	i := a.informer
	err := i.witness.await(ctx, i.clock.After(auditPatience), func(w *witnessed) bool {
		order, err := resourceversion.CompareResourceVersion(w.version, rv)
		return err == nil && order >= 0
	})
	if errors.Is(err, errPatience) {
		err = fmt.Errorf("%w, %s, within %s, and is at %s", audit.ErrBehind, rv, auditPatience, a.Version())
	}
	return err
}

// Range implements audit.Local.
func (a *audited) Range(after, upTo string, fn func(key string, obj any) bool) error {
	if a.informer.indexer.Residency() == Disk {
		return a.rangeOnDisk(after, upTo, fn)
	}
	if a.keys == nil {
		a.keys = slices.Sorted(slices.Values(a.informer.indexer.ListKeys()))
	}
	n, found := slices.BinarySearch(a.keys, after)
	if found {
		n++
	}
	for _, key := range a.keys[n:] {
		if upTo != "" && key > upTo {
			break
		}
		obj, exists, err := a.informer.indexer.GetByKey(key)
		if err != nil {
			return err
		}
		if exists && !fn(key, obj) {
			break
		}
	}
	return nil
}

// rangeOnDisk reads in chunks, and keeps nothing of them in the cache of decoded
// objects.
func (a *audited) rangeOnDisk(after, upTo string, fn func(key string, obj any) bool) error {
	for {
		chunk, err := a.informer.indexer.Chunk(after)
		if err != nil || chunk.Len() == 0 {
			return err
		}
		for n := range chunk.Len() {
			after = chunk.Key(n)
			if upTo != "" && after > upTo {
				return nil
			}
			obj, err := chunk.Object(n)
			if err != nil {
				return err
			}
			if !fn(after, obj) {
				return nil
			}
		}
	}
}

// Get implements audit.Local.
func (a *audited) Get(key string) (obj any, exists bool, err error) {
	return a.informer.indexer.GetByKey(key)
}

// Deleted implements audit.Local.
func (a *audited) Deleted(key string) (bool, error) { return a.informer.witness.sawDelete(key) }

func (s *AuditStatus) add(r audit.Report) {
	runs := maps.Clone(s.Runs) // readers have the old one
	if runs == nil {
		runs = map[audit.Result]int{}
	}
	runs[r.Result()]++
	s.Runs, s.Last = runs, r
	s.Objects += r.Objects
	s.Missing += r.Missing
	s.Extra += r.Extra
	s.Different += r.Different
	if r.Result() != audit.Failed {
		s.Succeeded = r.Finished
	}
}
