package factory

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
)

// Identify returns a copy of cfg whose clients let the informers of
// NewInformerFunc find out what they list, and in which cluster. To everybody
// else they are clients like any other.
//
// controller-runtime hides namespace and selectors of an informer inside
// closures. So an informer that starts makes one list request which says, in its
// context, that it is only to be seen. The transport of the returned config
// recognises it, looks at its URL, and lets it fail. It goes nowhere, so that this
// works without a server, and costs no more than its turn at the client's rate
// limit, and one more error in client-go's metrics of requests.
//
// Give the result to manager.New or cache.New. A client that is made from another
// config, or cache.Options.HTTPClient unless rest.HTTPClientFor made it from the
// result, bypasses the transport: the informers then work in memory, and say so
// (ErrNotIdentified). Finish cfg first: what is changed in the result is not
// known to the requests for the cluster's identity and schemas. An ExecProvider
// is asked for credentials even for the request that goes nowhere.
//
// The result may be used for any number of managers; nil for a nil cfg.
func Identify(cfg *rest.Config) *rest.Config {
	if cfg == nil {
		return nil
	}
	o := newOrigin(rest.CopyConfig(cfg))
	identified := rest.CopyConfig(cfg)
	identified.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return identifying{origin: o, next: next}
	})
	return identified
}

// identifying is the transport of an identified config.
type identifying struct {
	origin *origin
	next   http.RoundTripper
}

var _ net.RoundTripperWrapper = identifying{}

// RoundTrip implements http.RoundTripper.
func (t identifying) RoundTrip(r *http.Request) (*http.Response, error) {
	q, ok := r.Context().Value(inquiryKey{}).(*inquiry)
	if !ok {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // Its error is of no interest to a request that goes nowhere.
	}
	q.see(r, t.origin)
	return nil, errOnlySeen
}

// WrappedRoundTripper lets others find what they know how to handle.
func (t identifying) WrappedRoundTripper() http.RoundTripper { return t.next }

// inquiryKey is the key of the *inquiry in a context.
type inquiryKey struct{}

// inquiry is what the context of a request carries that is only to be seen.
type inquiry struct {
	mu struct {
		sync.Mutex
		// seen are the requests in question. A ListerWatcher that makes more
		// than one does more than to list a collection.
		seen   []*http.Request
		origin *origin
	}
}

func (q *inquiry) see(r *http.Request, o *origin) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.seen = append(q.mu.seen, r)
	q.mu.origin = o
}

// inquireTimeout bounds a request that should have been only seen, and was made
// instead. A client may also have to wait for its rate limit.
const inquireTimeout = 30 * time.Second

// inquire lets lw list, for an identified transport to see it, and returns what
// lw lists, without its form. The error wraps ErrNotIdentified. If no transport
// sees the request, a server may answer it: hence the limit. The answer is dropped.
func inquire(ctx context.Context, lw cache.ListerWatcher) (store.Identity, *origin, error) {
	q := &inquiry{}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, inquiryKey{}, q), inquireTimeout)
	defer cancel()
	_, err := cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	return q.result(err)
}

// result says what the requests were for; err is what the list returned.
func (q *inquiry) result(err error) (store.Identity, *origin, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.mu.seen) == 0:
		return store.Identity{}, nil, unseen(err)
	case err == nil || q.severalLocked():
		return store.Identity{}, nil, fmt.Errorf("%w: it does more than one list request", ErrNotIdentified)
	}
	id, err := q.mu.origin.collectionOf(q.mu.seen[0])
	if err != nil {
		return store.Identity{}, nil, fmt.Errorf("%w: %w", ErrNotIdentified, err)
	}
	return id, q.mu.origin, nil
}

// severalLocked says whether different requests were seen. The same one again is a
// retry of somebody on the way.
func (q *inquiry) severalLocked() bool {
	first := q.mu.seen[0]
	return slices.ContainsFunc(q.mu.seen, func(r *http.Request) bool {
		return r.Method != first.Method || r.URL.String() != first.URL.String()
	})
}

// unseen is the error for a list that no identified transport has seen.
func unseen(err error) error {
	const advice = "its client was not made from the result of factory.Identify: " +
		"give manager.New factory.Identify(config), and leave HTTPClient in cache.Options unset " +
		"or make it with rest.HTTPClientFor from that config"
	if err == nil {
		return fmt.Errorf("%w: %s", ErrNotIdentified, advice)
	}
	return unanswered{fmt.Errorf("%w: its client does not get to make requests, or %s: %w", ErrNotIdentified, advice, err)}
}

// unanswered is an error that may go away: a client that could not get credentials,
// or was held up by its rate limit.
type unanswered struct{ error }

// Unwrap makes errors.Is see what it is about.
func (u unanswered) Unwrap() error { return u.error }

// origin is the API server that an identified config leads to. All informers with
// clients of that config share it.
type origin struct {
	// base is the path of its address, which precedes that of every request:
	// empty, or /k8s/clusters/c-1.
	base func() (string, error)
	// server makes a client when the first informer wants to know something.
	server func() (*server, error)
}

func newOrigin(config *rest.Config) *origin {
	return &origin{
		base: sync.OnceValues(func() (string, error) {
			address, _, err := rest.DefaultServerUrlFor(config)
			if err != nil {
				return "", err
			}
			return strings.TrimSuffix(path.Join("/", address.Path), "/"), nil
		}),
		server: sync.OnceValues(func() (*server, error) {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return nil, err
			}
			s := serverOf(client)
			s.changes = true // Nobody says when informers start.
			return s, nil
		}),
	}
}

// cluster returns the identity of the cluster.
func (o *origin) cluster(ctx context.Context) (string, error) {
	s, err := o.server()
	if err != nil {
		return "", err
	}
	return s.clusterID(ctx)
}

// schema returns the fingerprint of a schema.
func (o *origin) schema(ctx context.Context, gv schema.GroupVersion) (string, error) {
	s, err := o.server()
	if err != nil {
		return "", err
	}
	return s.schemaOf(gv)(ctx)
}
