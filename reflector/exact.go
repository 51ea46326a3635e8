package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/pager"
)

// errInexact says that a server does not list at the version that it is asked for.
var errInexact = errors.New("the list is of another version than was asked for")

// consumerFailed notes at which version to list because of what the consumer has
// reported, if it says so, and returns that as the error of a list or watch.
func (r *Reflector) consumerFailed(cause error) queueError {
	r.run.forgotten = false // also within a list of what has another version only
	var lost loss
	if errors.As(cause, &lost) {
		rv := lost.LostVersion()
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err == nil {
			r.run.exact, r.run.exactFailures = rv, 0
		}
	}
	return queueError{cause}
}

// exactList lists the state at the version at which the consumer has lost its
// objects. The watch that goes on from there tells what has been deleted since.
func (r *Reflector) exactList(ctx context.Context) error {
	err := r.listPages(ctx, metav1.ListOptions{
		Limit:                pager.New(nil).PageSize,
		ResourceVersion:      r.run.exact,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil {
		return fmt.Errorf("listing %s at %s: %w", r.description, r.run.exact, err)
	}
	return nil
}

// isRefusedExactly reports whether the current state has to be listed, because an
// exact list that failed with err is not worth another try. What does not concern
// the version is tried again: as often as it takes while the server does not answer,
// is busy or says no, which it would to any list.
func (r *Reflector) isRefusedExactly(err error) bool {
	var answer apierrors.APIStatus
	switch {
	case isExpired(err), isTooLarge(err), errors.Is(err, errInexact), errors.Is(err, ErrUnusable):
		return true
	case !errors.As(err, &answer), isDenied(err), isBusy(err):
		return false
	case answer.Status().Code < http.StatusInternalServerError:
		return true
	}
	r.run.exactFailures++
	return r.run.exactFailures >= maxFailures
}
