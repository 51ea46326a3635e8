package reflector

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// ErrUnusable is wrapped by the error that reports an object from the server
// that cannot be put into the queue.
var ErrUnusable = errors.New("object from the API server cannot be used")

// errTable explains what is wrong with a table.
var errTable = errors.New("the client asks for tables, which hold no objects")

// errBlank explains what is wrong with an answer that client-go takes for a list.
var errBlank = errors.New("the answer has neither a resourceVersion nor objects; something between here and the API server may have sent it")

// errNoVersion explains what is wrong with a bookmark.
var errNoVersion = errors.New("the bookmark has no resourceVersion")

// queueError wraps what the consumer of the queue reported.
type queueError struct{ cause error }

func (e queueError) Error() string {
	return fmt.Sprintf("store has to be listed again: %v", e.cause)
}
func (e queueError) Unwrap() error { return e.cause }

// loss is what a consumer reports that has lost the objects that it had at a
// version. A list of a later state does not tell what has been deleted since.
type loss interface {
	error
	LostVersion() string
}

// unreported is an error that watch error handlers are not told of, because they
// are not told of its like by client-go: they hear of lists that failed and of
// watches that could not be opened. What ends an open watch is ordinary, and so
// is a server that is busy or away when a watch is to be opened.
type unreported struct{ error }

func (e unreported) Unwrap() error { return e.error }

// isExpired reports whether a version is too old, or was given out by a server
// that no longer knows it. Servers before 1.18 say Gone.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// isTooLarge reports whether the server has not reached a version yet.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isRejected reports whether the server will not take this request however often
// it is made.
func isRejected(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.IsNotAcceptable(err) || apierrors.IsMethodNotSupported(err)
}

// isAnswer reports whether it was the server that has said no, in whatever way.
func isAnswer(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer)
}

// isDenied reports whether the server is there and says no.
func isDenied(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// isBusy reports whether asking in another way instead would only add load.
func isBusy(err error) bool {
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || apierrors.IsTooManyRequests(err)
}

// isPassing reports whether the server may be expected to take the same watch
// later, as in client-go.
func isPassing(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}

// isOverloaded reports whether the server has more to do than it can.
func isOverloaded(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// isBroken reports whether a watch broke off, as opposed to having brought what
// cannot be understood. client-go ends a watch without an error for the causes that
// were usual before HTTP/2, and of the others leaves the text.
func isBroken(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.HasStatusCause(err, "ClientWatchDecoding") || !errors.As(err, &answer) {
		return false
	}
	message := answer.Status().Message
	for _, broken := range []string{
		"http2: client connection lost", // no answer to a ping
		"stream error: ",                // a proxy that gave up on the server
		"read tcp ",
	} {
		if strings.Contains(message, broken) {
			return true
		}
	}
	return false
}

// isUnversioned reports whether rv is a version that no state has. Servers that
// keep none give it to their lists; a watch from it begins with what exists.
func isUnversioned(rv string) bool { return rv == "" || rv == "0" }
