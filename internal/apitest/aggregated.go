package apitest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
)

// Aggregated says in what the server of a resource differs from kube-apiserver,
// which only passes the requests on to it. Real ones differ in one thing or another;
// the zero value in none.
type Aggregated struct {
	// Objects and Lists say what the resourceVersions of objects are, and those of
	// lists and bookmarks.
	Objects, Lists Versions
	// NoReplay keeps no history: a watch from any version is accepted, never
	// expires, and begins with what happens next.
	NoReplay bool
	// NoBookmarks sends none, except the one that ends initial events.
	NoBookmarks bool
	// NoInitialEvents ignores sendInitialEvents, as servers do that leave watches to
	// storage of their own: what follows is an ordinary watch, which has no such end.
	NoInitialEvents bool
	// NoLimit answers every list with all that there is.
	NoLimit bool
	// Unordered lists in an order that is another one with every version.
	Unordered bool
	// NoSelectors refuses label and field selectors with 400.
	NoSelectors bool
	// NoWatch refuses watches with 405.
	NoWatch bool
}

// Versions is a way to give out resourceVersions.
type Versions int

// The ways to give out versions.
const (
	// Comparable versions are kube-apiserver's: numbers that grow with each change.
	Comparable Versions = iota
	// Opaque versions are strings, of which only their server knows which is newer.
	Opaque
	// PerObject versions are numbers that count the changes of one object. They
	// are no versions of lists.
	PerObject
	// Unversioned leaves them out.
	Unversioned
	// AlwaysZero says 0.
	AlwaysZero
)

// format returns version rv of a collection, in which an object has been written so
// many times.
func (v Versions) format(rv uint64, written int) string {
	switch v {
	case Opaque:
		return strconv.FormatUint(rv, 10) + opaqueSuffix
	case PerObject:
		return strconv.Itoa(written)
	case Unversioned:
		return ""
	case AlwaysZero:
		return "0"
	case Comparable:
	}
	return strconv.FormatUint(rv, 10)
}

// opaqueSuffix makes a number a string that is none.
const opaqueSuffix = "/0/"

// version reads a version that the server has given out, for a list or watch.
func (a Aggregated) version(rv string) (uint64, error) {
	if a.NoReplay {
		return 0, nil // whatever it is
	}
	return parseRV(strings.TrimSuffix(rv, opaqueSuffix))
}

// accept refuses what the server cannot do.
func (a Aggregated) accept(r *request, opts *internalversion.ListOptions) error {
	switch {
	case a.NoWatch && r.verb == "watch":
		return apierrors.NewMethodNotSupported(r.gvr.GroupResource(), r.verb)
	case a.NoSelectors && !(scope{opts: opts}).everything():
		return apierrors.NewBadRequest("selectors are not supported")
	}
	return nil
}

// shuffle puts rows at version rv into the order of a server that has none.
func (a Aggregated) shuffle(rows []*record, rv uint64) []*record {
	if !a.Unordered {
		return rows
	}
	rows = slices.Clone(rows)
	rand.New(rand.NewPCG(rv, 0)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}
