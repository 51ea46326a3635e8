package audit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxExamples is how many keys a report names.
	maxExamples = 10
	// maxFindings is how many differences a report can recognise later.
	maxFindings = 1000
)

// Result is what came of a run.
type Result string

// The results.
const (
	// Verified means that everything was compared, and is the same or newer.
	Verified Result = "verified"
	// Repaired means that there were differences, and a list has removed them.
	Repaired Result = "repaired"
	// Failed means that the run, or the list that was to repair what it had found,
	// did not come to its end.
	Failed Result = "failed"
)

// Report is what a run has found.
type Report struct {
	// Started and Finished are when the run began and ended, the list that repairs
	// included. Both are zero before the first run.
	Started, Finished time.Time
	// RV is the version of the last page that was compared.
	RV string
	// Objects counts what the server has listed, in so many Pages.
	Objects, Pages int
	// Missing counts objects that are listed and not stored, Extra those that are
	// stored and not listed, and Different those that are both, but not the same.
	Missing, Extra, Different int
	// Newer counts objects that have changed or gone since their page was listed,
	// which say nothing.
	Newer int
	// Examples are the keys of the first ten differences.
	Examples []string
	// Repaired says that a list has been applied since, and has removed the differences.
	Repaired bool
	// Err is why the run ended early; nil if it did not.
	Err error

	findings []finding
}

// finding is one difference, as it can be recognised in a later run.
type finding struct {
	kind kind
	key  string
	// uid and rv are those of the listed object, or of the stored one if none is.
	uid types.UID
	rv  string
	// metadata is what is listed, if the same version of the object is stored with other
	// metadata.
	metadata metav1.Object
}

func (f finding) equals(other finding) bool {
	f.metadata, other.metadata = nil, nil // which is that of the version
	return f == other
}

// kind is a kind of difference.
type kind int

const (
	missing kind = iota
	extra
	different
)

// Result sums up the report.
func (r Report) Result() Result {
	switch {
	case r.Repaired:
		return Repaired // by a list of everything, however far the run got
	case r.Err != nil || r.Differences() > 0:
		return Failed
	}
	return Verified
}

// Differences is the number of all differences.
func (r Report) Differences() int { return r.Missing + r.Extra + r.Different }

// NeedsList reports whether only a list of everything can bring the cache and the
// server together.
func (r Report) NeedsList() bool {
	return r.Differences() > 0 || errors.Is(r.Err, ErrRestored)
}

// Recurs reports whether r has found exactly what an earlier report had, which a list
// has not removed.
func (r Report) Recurs(earlier Report) bool {
	return errors.Is(earlier.Err, ErrUnrepaired) &&
		r.Differences() == earlier.Differences() && slices.EqualFunc(r.findings, earlier.findings, finding.equals)
}

// Remains looks, after a list, whether there is still anything of the first thousand
// differences. What has changed since then does not count.
func (r Report) Remains(local Local) (bool, error) {
	for _, f := range r.findings {
		if remains, err := f.remains(local); remains || err != nil {
			return remains, err
		}
	}
	return false, nil
}

func (f finding) remains(local Local) (bool, error) {
	obj, exists, err := local.Get(f.key)
	switch {
	case err != nil:
		return false, err
	case !exists && f.kind == extra:
		return false, nil
	case !exists:
		deleted, err := local.Deleted(f.key)
		return !deleted, err
	}
	stored, err := meta.Accessor(obj)
	if err != nil {
		return false, err
	}
	same := stored.GetUID() == f.uid && stored.GetResourceVersion() == f.rv
	switch {
	case f.kind == extra:
		return same, nil
	case same && f.metadata != nil:
		return !sameMetadata(stored, f.metadata), nil
	}
	return !same && !isBefore(f.rv, stored.GetResourceVersion()), nil
}

// String says what was found, in a few words.
func (r Report) String() string {
	if r.Pages == 0 {
		return "nothing compared"
	}
	return fmt.Sprintf("%d missing, %d extra, %d different of %d objects at resourceVersion %s", r.Missing, r.Extra, r.Different, r.Objects, r.RV)
}

// add counts the findings of a page.
func (r *Report) add(found []finding) {
	for _, f := range found {
		switch f.kind {
		case missing:
			r.Missing++
		case extra:
			r.Extra++
		case different:
			r.Different++
		}
		if len(r.Examples) < maxExamples {
			r.Examples = append(r.Examples, f.key)
		}
		if len(r.findings) < maxFindings {
			r.findings = append(r.findings, f)
		}
	}
}
