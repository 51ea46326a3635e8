package apitest

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

func TestServer_DownAndUp(t *testing.T) {
	for name, opts := range map[string]Options{"TCP": {}, "TLS": {TLS: true}, "InMemory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, opts)
			url := srv.URL()
			fill(t, srv, 1)
			w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: srv.ResourceVersion()})
			check(t, srv.Down())
			wantEnd(t, w)
			if _, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("while down: got %v, want connection refused", err)
			}
			check(t, srv.Create(configMap("written-while-down")))
			check(t, srv.Up())
			list, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{})
			check(t, err)
			if len(list.Items) != 2 || srv.URL() != url {
				t.Errorf("%d objects at %s, want 2 at %s", len(list.Items), srv.URL(), url)
			}
		})
	}
}

func TestServer_Down_Twice(t *testing.T) {
	srv := newServer(t, Options{})
	check(t, srv.Up())
	check(t, srv.Down())
	check(t, srv.Down())
	check(t, srv.Close())
}

func TestServer_TLS_SpeaksHTTP2(t *testing.T) {
	srv := newServer(t, Options{TLS: true})
	httpClient, err := rest.HTTPClientFor(srv.RESTConfig())
	check(t, err)
	reply, err := httpClient.Get(srv.URL() + "/version")
	check(t, err)
	check(t, reply.Body.Close())
	if reply.ProtoMajor != 2 || reply.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", reply.Proto, reply.Status)
	}
}

func TestNew_InMemoryTLS_Refused(t *testing.T) {
	if _, err := New(Options{TLS: true, InMemory: true}); err == nil {
		t.Error("there is no such server")
	}
}

func TestServer_Down_ReleasesStalledRequests(t *testing.T) {
	srv := newServer(t, Options{})
	stall := srv.Inject(Fault{Stall: true})
	failed := make(chan error)
	go func() {
		_, err := client(t, srv).CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		failed <- err
	}()
	waitForHits(t, stall, 1)
	check(t, srv.Down())
	if err := <-failed; err == nil {
		t.Error("the stalled request was answered")
	}
}

// In a bubble, time passes only while everybody waits, so the moments at which
// bookmarks come are exact.
func TestWatch_BookmarkSchedule(t *testing.T) {
	for name, tt := range map[string]struct {
		opts    Options
		timeout int64
		want    []time.Duration
		end     time.Duration
	}{
		"two seconds before the deadline": {timeout: 3, want: []time.Duration{time.Second}, end: 3 * time.Second},
		"deadline too close":              {timeout: 2, end: 2 * time.Second},
		"other lead":                      {opts: Options{BookmarkLead: 2900 * time.Millisecond}, timeout: 3, want: []time.Duration{100 * time.Millisecond}, end: 3 * time.Second},
		"every minute":                    {timeout: 150, want: []time.Duration{time.Minute, 2 * time.Minute, 148 * time.Second}, end: 150 * time.Second},
		"other interval":                  {opts: Options{BookmarkInterval: 4 * time.Second}, timeout: 8, want: []time.Duration{4 * time.Second, 6 * time.Second}, end: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.opts.InMemory = true
				srv := newServer(t, tt.opts)
				start := time.Now()
				w := watchConfigMaps(t, srv, metav1.ListOptions{
					ResourceVersion: srv.ResourceVersion(), AllowWatchBookmarks: true, TimeoutSeconds: &tt.timeout,
				})
				synctest.Wait()
				fill(t, srv, 1)
				wantEvent(t, w, watch.Added, "c0")
				for _, want := range tt.want {
					if e := <-w.ResultChan(); e.Type != watch.Bookmark || time.Since(start) != want {
						t.Errorf("got %s after %v, want a bookmark after %v", e.Type, time.Since(start), want)
					}
				}
				if e, ok := <-w.ResultChan(); ok || time.Since(start) != tt.end {
					t.Errorf("got %v after %v, want the end after %v", e, time.Since(start), tt.end)
				}
			})
		})
	}
}

func TestWatch_NoTimeout_EndsWithinAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		start := time.Now()
		w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"})
		<-w.ResultChan()
		if d := time.Since(start); d < 30*time.Minute || d > time.Hour {
			t.Errorf("ended after %v, want 30 to 60 minutes", d)
		}
	})
}

func TestServer_TooLarge_WaitsForTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		rv := future(srv, 1)
		go func() {
			time.Sleep(time.Second)
			if err := srv.Create(configMap("a")); err != nil {
				t.Error(err)
			}
		}()
		list, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{ResourceVersion: rv})
		check(t, err)
		if len(list.Items) != 1 {
			t.Errorf("got %d objects, want the one written meanwhile", len(list.Items))
		}
	})
}
