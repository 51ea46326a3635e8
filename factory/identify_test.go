package factory

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/store"
)

func TestIdentify_CopiesTheConfig(t *testing.T) {
	if got := Identify(nil); got != nil {
		t.Errorf("Identify(nil) = %v", got)
	}
	cfg := &rest.Config{Host: "https://x", UserAgent: "me"}
	identified := Identify(cfg)
	if identified == cfg || identified.Host != cfg.Host || identified.UserAgent != cfg.UserAgent {
		t.Errorf("Identify returned %v, want a copy of %v", identified, cfg)
	}
	if cfg.WrapTransport != nil {
		t.Error("Identify changed its argument")
	}
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestIdentify_OtherRequestsPass(t *testing.T) {
	sent := 0
	identified := Identify(&rest.Config{Host: "http://x", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, errors.New("not connected")
	})})
	client := must(kubernetes.NewForConfig(identified))
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil || errors.Is(err, errOnlySeen) || sent != 1 {
		t.Errorf("%d requests were sent, with error %v; want one, with the transport's error", sent, err)
	}
}

// The transport below stays reachable for what looks for it, such as
// CloseIdleConnectionsFor.
func TestIdentify_TransportCanBeUnwrapped(t *testing.T) {
	below := &http.Transport{}
	rt := identifying{next: below}
	if got := rt.WrappedRoundTripper(); got != below {
		t.Errorf("unwrapped %v", got)
	}
	if _, err := utilnet.DialerFor(rt); err != nil {
		t.Error(err)
	}
}

// selections are the ways in which controller-runtime restricts an informer.
var selections = map[string]hidden{
	"everything":      {},
	"a namespace":     {namespace: "web"},
	"a label":         {labels: "app=x"},
	"a field":         {fields: "metadata.name=x"},
	"all of it":       {namespace: "web", labels: "app in (x,y),tier", fields: "metadata.name!=x"},
	"other namespace": {namespace: "db"},
}

// TestInquire_EveryFormOfClient does without a server: nothing is sent.
func TestInquire_EveryFormOfClient(t *testing.T) {
	host := "http://127.0.0.1:1/k8s/clusters/c-1"
	config := Identify(&rest.Config{Host: host, Timeout: 5e9, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s was sent", r.URL)
		return nil, errors.New("not connected")
	})})
	for name, h := range selections {
		h.gvr = configMapsResource
		want := store.Identity{
			Version: "v1", Resource: "configmaps", Namespace: h.namespace, LabelSelector: h.labels, FieldSelector: h.fields,
		}
		for form, lw := range map[string]cache.ListerWatcher{
			"typed": h.configMaps(t, config), "unstructured": h.unstructured(config), "metadata": h.metadata(config, configMapKind),
			// A client that went through Identify twice.
			"typed twice": h.configMaps(t, Identify(config)),
		} {
			got, origin, err := inquire(t.Context(), lw)
			if got != want || origin == nil || err != nil {
				t.Errorf("%s of %s: %+v, %v; want %+v", form, name, got, err, want)
			}
		}
	}
}

func TestInquire_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lw := hidden{}.configMaps(t, &rest.Config{Host: "http://127.0.0.1:1"})
	if _, _, err := inquire(ctx, lw); !errors.Is(err, ErrNotIdentified) || !errors.Is(err, context.Canceled) {
		t.Errorf("inquire = %v, want ErrNotIdentified because the context has ended", err)
	}
}

// unidentifiable are ListerWatchers that do not show what they list.
func unidentifiable(t *testing.T, config *rest.Config) map[string]cache.ListerWatcher {
	t.Helper()
	client := must(kubernetes.NewForConfig(Identify(config)))
	list := client.CoreV1().ConfigMaps("").List
	of := func(list func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)) cache.ListerWatcher {
		return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: client.CoreV1().ConfigMaps("").Watch}
	}
	return map[string]cache.ListerWatcher{
		"plain config": hidden{}.configMaps(t, config),
		"without its context": of(func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return list(t.Context(), o)
		}),
		"two requests": of(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if _, err := client.CoreV1().ConfigMaps("other").List(ctx, o); err != nil && !errors.Is(err, errOnlySeen) {
				return nil, err
			}
			return list(ctx, o)
		}),
		"with a list of its own": of(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if result, err := list(ctx, o); !errors.Is(err, errOnlySeen) {
				return result, err
			}
			return &corev1.ConfigMapList{}, nil
		}),
		"from the watch cache": of(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.ResourceVersion = "0"
			return list(ctx, o)
		}),
	}
}

func TestInquire_NotIdentified(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		for name, lw := range unidentifiable(t, c.server.RESTConfig()) {
			if id, _, err := inquire(t.Context(), lw); !errors.Is(err, ErrNotIdentified) {
				t.Errorf("%s: %v, %v; want ErrNotIdentified", name, id, err)
			}
		}
		lw := &cache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return fake.NewClientset().CoreV1().ConfigMaps("").List(ctx, o)
		}}
		if id, _, err := inquire(t.Context(), lw); !errors.Is(err, ErrNotIdentified) {
			t.Errorf("fake client: %v, %v; want ErrNotIdentified", id, err)
		}
	})
}

// TestNewInformerFunc_NotIdentified checks that nothing is persisted under a wrong
// name, that the informer works all the same, and that people are told what to do.
func TestNewInformerFunc_NotIdentified(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""), labelled("web", "b", ""))
		a := c.begin()
		for name, lw := range unidentifiable(t, c.server.RESTConfig()) {
			inf := a.informer(lw, &corev1.ConfigMap{})
			wantKeys(t, inf, "web/a", "web/b")
			if s := statusOf(inf); s.Persistent || !errors.Is(s.Durability.Err, ErrNotIdentified) {
				t.Errorf("%s: status %+v", name, s)
			}
		}
		if got := identities(t, a.db); len(got) != 0 {
			t.Errorf("the file has %q", got)
		}
		if log := a.log.String(); !strings.Contains(log, "E0") || !strings.Contains(log, "factory.Identify") {
			t.Errorf("the log does not say what to do:\n%s", log)
		}
	})
}

// An informer that nobody identifies asks for one object, and drops it.
func TestNewInformerFunc_NotIdentified_OneHarmlessRequest(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""), labelled("web", "b", ""))
		a := c.begin()
		inf := a.informer(hidden{}.configMaps(t, c.server.RESTConfig()), &corev1.ConfigMap{})
		wantKeys(t, inf, "web/a", "web/b")
		first := c.server.Requests()[0]
		if counts := c.server.Counts(); first.Query.Get("limit") != "1" || counts.FullLists != 1 {
			t.Errorf("first request %+v, %d full lists; want a list of one object, and one full list", first, counts.FullLists)
		}
	})
}

func TestNewInformerFunc_Identified_AsksNobody(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", ""))
		a := c.begin()
		a.informer(hidden{}.configMaps(t, Identify(c.server.RESTConfig())), &corev1.ConfigMap{})
		for _, r := range c.server.Requests() {
			if r.Query.Get("limit") == "1" {
				t.Errorf("request %+v at a cold start", r)
			}
		}
	})
}

// doubling is a transport that sends what fails once more.
type doubling struct{ http.RoundTripper }

func (d doubling) RoundTrip(r *http.Request) (*http.Response, error) {
	if response, err := d.RoundTripper.RoundTrip(r); err == nil {
		return response, nil
	}
	return d.RoundTripper.RoundTrip(r)
}

// failingAtFirst is a transport that cannot send anything at first, as for lack of
// credentials.
type failingAtFirst struct {
	http.RoundTripper
	left *atomic.Int32
}

func (f failingAtFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left.Add(-1) >= 0 {
		return nil, errors.New("no credentials yet")
	}
	return f.RoundTripper.RoundTrip(r)
}

// TestIdentify_BehindOthers has transports between the client and ours that do more,
// or less, than to pass requests on.
func TestIdentify_BehindOthers(t *testing.T) {
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"retrying": func(next http.RoundTripper) http.RoundTripper { return doubling{next} },
		"failing at first": func(next http.RoundTripper) http.RoundTripper {
			left := &atomic.Int32{}
			left.Store(3)
			return failingAtFirst{next, left}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				config := Identify(c.server.RESTConfig())
				config.Wrap(wrap)
				s := statusOf(c.begin().informer(hidden{}.configMaps(t, config), &corev1.ConfigMap{}))
				if !s.Persistent {
					t.Errorf("not persisted: %v", s.Durability.Err)
				}
			})
		})
	}
}
