package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// DefaultRate is the default of Options.Rate: one page a second.
	DefaultRate = 500
	// pageSize is how many objects the server is asked for at a time, client-go's.
	pageSize = 500
	// maxTries is how often a page is listed that cannot be compared because the cache
	// is filled by a list meanwhile.
	maxTries = 5
)

// Lister lists the metadata of the collection, with its selectors. What
// metadata.Interface has for a resource is one.
type Lister interface {
	// List lists with the limit, or the token, of the options.
	List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
}

// Local is the cache that is compared. It is used by one goroutine, and changes
// meanwhile.
type Local interface {
	// Version is the resourceVersion up to which changes have been applied, or "".
	Version() string
	// Settled waits until no list is being applied and everything can be read, and
	// returns a number that is another one after each list. What was read meanwhile
	// does not count then, nor does an error of reading it. It fails with ErrUnsettled
	// if that takes too long.
	Settled(ctx context.Context) (lists uint64, err error)
	// Reached waits until everything up to a version of the server has been applied.
	// It fails with ErrBehind if that takes too long.
	Reached(ctx context.Context, rv string) error
	// Range calls fn, until it returns false, with the objects behind the key after up
	// to and including upTo, in the order of the keys. An empty upTo is no end. An
	// object that is there from the first call of the run to the end of this one comes
	// once, in a state that it has had during this one; others may come or not.
	Range(after, upTo string, fn func(key string, obj any) bool) error
	// Get returns one object.
	Get(key string) (obj any, exists bool, err error)
	// Deleted reports whether a delete of key was applied since the run began. An
	// object that Get has not found because of one is reported. It fails with ErrBusy
	// if it cannot know.
	Deleted(key string) (bool, error)
}

// Options configure a run.
type Options struct {
	Lister Lister
	Local  Local
	// Transformed says that what is stored went through a function that may have
	// changed its metadata. Then only UIDs and versions are compared.
	Transformed bool
	// Rate is how many objects a second are listed; 0 means DefaultRate.
	Rate int
	// Clock defaults to the real one.
	Clock clock.Clock
}

// Run compares everything once. It ends early when ctx does.
func Run(ctx context.Context, o Options) Report {
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := run{Options: o}
	r.report.Started = o.Clock.Now()
	r.report.Err = r.pages(ctx)
	r.report.Finished = o.Clock.Now()
	return r.report
}

// run is a run under way.
type run struct {
	Options
	report Report
	// after is the last key that was compared, token where the list goes on.
	after, token string
	// startedOver is set once a token has expired and none was offered instead.
	startedOver bool
	// lists is the number of lists of the cache's own, nil before the first page. If there
	// was one since, filled is a version that it has brought the cache to, or a later one.
	lists  *uint64
	filled string
}

func (r *run) pages(ctx context.Context) error {
	for {
		list, err := r.page(ctx)
		if err != nil {
			return err
		}
		if r.token = list.Continue; r.token == "" {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Clock.After(r.pause(len(list.Items))):
		}
	}
}

// pause is how long so many objects take at the rate.
func (r *run) pause(objects int) time.Duration {
	return time.Duration(max(1, objects)) * time.Second / time.Duration(r.Rate)
}

// page lists and compares one page, until no list of the cache's own comes in between.
func (r *run) page(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
	for range maxTries {
		lists, err := r.Local.Settled(ctx)
		if err != nil {
			return nil, err
		}
		version := r.Local.Version()
		r.noteLists(lists, version)
		list, err := r.list(ctx)
		if err != nil {
			return nil, err
		}
		p, err := r.pageOf(list)
		if err != nil {
			return nil, err
		}
		restored := r.token == "" && isBefore(p.rv, version)
		var c comparison
		if !restored && !p.isVoid() {
			c, err = r.settle(ctx, p)
		}
		now, unsettled := r.Local.Settled(ctx)
		switch {
		case unsettled == nil && now != lists: // whatever err says of it
			continue
		case err != nil:
			return nil, err
		case unsettled != nil:
			return nil, unsettled
		case restored:
			return nil, fmt.Errorf("%w: it is at resourceVersion %s, before our %s", ErrRestored, p.rv, version)
		}
		r.conclude(p, c)
		return list, nil
	}
	return nil, fmt.Errorf("%w: %d attempts to compare a page were in vain", ErrUnsettled, maxTries)
}

// noteLists notes whether the cache was filled by a list, which leaves out what was deleted
// before the cache has heard of it.
func (r *run) noteLists(lists uint64, version string) {
	if r.lists != nil && *r.lists != lists {
		r.filled = version
	}
	r.lists = &lists
}

// settle compares a page, and again, if anything differs, when the cache has reached
// its version.
func (r *run) settle(ctx context.Context, p page) (comparison, error) {
	c, err := compare(r.Local, p, !r.Transformed)
	if err != nil || len(c.found) == 0 {
		return c, err
	}
	if err := r.Local.Reached(ctx, p.rv); err != nil {
		return c, err
	}
	return compare(r.Local, p, !r.Transformed)
}

func (r *run) conclude(p page, c comparison) {
	r.after = p.upTo
	r.report.RV = p.rv
	r.report.Pages++
	r.report.Objects += len(p.items)
	r.report.Newer += c.newer
	r.report.add(c.found)
}

// list asks for the next page. If its token has expired, the server offers one for what
// it has now; a server that does not is listed from the beginning, once.
func (r *run) list(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
	for {
		list, err := r.Lister.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: r.token})
		switch {
		case err == nil:
			return list, nil
		case r.token == "" || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return nil, fmt.Errorf("listing metadata: %w", err)
		case !r.goOn(err):
			return nil, fmt.Errorf("listing metadata, from the beginning again: %w", err)
		}
	}
}

// goOn decides how to go on after a token has expired, and reports whether to.
func (r *run) goOn(expired error) bool {
	var status apierrors.APIStatus
	offered := ""
	if errors.As(expired, &status) {
		offered = status.Status().Continue
	}
	switch {
	case offered != "" && offered != r.token:
		r.token = offered
	case r.startedOver:
		return false
	default:
		r.startedOver = true
		r.after, r.token = "", ""
		r.report = Report{Started: r.report.Started}
	}
	return true
}

// pageOf checks that a page can be compared.
func (r *run) pageOf(list *metav1.PartialObjectMetadataList) (page, error) {
	p := page{
		rv: list.ResourceVersion, filled: r.filled, after: r.after,
		items: make([]item, len(list.Items)), more: list.Continue != "",
	}
	if _, err := resourceversion.CompareResourceVersion(p.rv, p.rv); err != nil {
		return p, fmt.Errorf("%w: the list has %q", ErrIncomparable, p.rv)
	}
	last := r.after
	for n := range list.Items {
		object := &list.Items[n]
		key := cache.MetaObjectToName(object).String()
		if key <= last {
			return p, fmt.Errorf("%w: %s comes after %s", ErrDisorder, key, last)
		}
		p.items[n], last = item{key: key, object: object}, key
	}
	if p.more {
		p.upTo = last
	}
	return p, nil
}

// isBefore reports whether one version is known to be before another.
func isBefore(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
