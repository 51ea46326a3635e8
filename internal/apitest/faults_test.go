package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func waitForHits(t *testing.T, in *Injected, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); in.Hits() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the fault acted on %d requests, want %d", in.Hits(), n)
		}
	}
}

func TestInject_Status(t *testing.T) {
	for status, is := range map[int]func(error) bool{
		http.StatusUnauthorized:        apierrors.IsUnauthorized,
		http.StatusForbidden:           apierrors.IsForbidden,
		http.StatusNotFound:            apierrors.IsNotFound,
		http.StatusGone:                apierrors.IsResourceExpired,
		http.StatusTooManyRequests:     apierrors.IsTooManyRequests,
		http.StatusInternalServerError: apierrors.IsInternalError,
		http.StatusServiceUnavailable:  apierrors.IsServiceUnavailable,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			srv := newServer(t, Options{})
			in := srv.Inject(Fault{Verb: "list", Resource: "configmaps", Status: status})
			if _, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{}); !is(err) {
				t.Errorf("got %v", err)
			}
			if _, err := client(t, srv).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("another resource: %v", err)
			}
			in.Remove()
			if _, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{}); err != nil {
				t.Errorf("after removal: %v", err)
			}
			if got := srv.Requests()[0]; got.Status != status || !got.Done {
				t.Errorf("logged %+v, want status %d", got, status)
			}
		})
	}
}

func TestInject_RetryAfter_ClientWaitsAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		in := srv.Inject(Fault{Status: http.StatusTooManyRequests, RetryAfter: 7 * time.Second, Times: 2})
		start := time.Now()
		_, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{})
		check(t, err)
		if d := time.Since(start); d < 14*time.Second || in.Hits() != 2 {
			t.Errorf("answered after %v and %d refusals, want 14s and 2", d, in.Hits())
		}
	})
}

func TestInject_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		srv.Inject(Fault{Delay: time.Minute})
		start := time.Now()
		_, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{})
		check(t, err)
		if d := time.Since(start); d != time.Minute {
			t.Errorf("answered after %v, want a minute", d)
		}
	})
}

func TestInject_Stall_UntilRemoved(t *testing.T) {
	srv := newServer(t, Options{})
	in := srv.Inject(Fault{Stall: true, Times: 1})
	answered := make(chan error)
	go func() {
		_, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{})
		answered <- err
	}()
	waitForHits(t, in, 1)
	select {
	case err := <-answered:
		t.Fatalf("answered with %v while stalled", err)
	default:
	}
	in.Remove()
	in.Remove()
	check(t, <-answered)
}

func TestInject_Stall_ClientGivesUp(t *testing.T) {
	srv := newServer(t, Options{})
	in := srv.Inject(Fault{Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		waitForHits(t, in, 1)
		cancel()
	}()
	if _, err := listConfigMaps(ctx, t, srv, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the client's own error", err)
	}
}

func TestInject_Stall_SilencesRunningWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: srv.ResourceVersion()})
		synctest.Wait()
		in := srv.Inject(Fault{Verb: "watch", Stall: true})
		fill(t, srv, 1)
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Fatalf("got %v while stalled", e)
		default:
		}
		in.Remove()
		wantEvent(t, w, watch.Added, "c0")
	})
}

func TestInject_DropAfterEvents(t *testing.T) {
	srv := newServer(t, Options{})
	fill(t, srv, 5)
	srv.Inject(Fault{Verb: "watch", DropAfterEvents: 2, Times: 1})
	w := watchConfigMaps(t, srv, metav1.ListOptions{})
	wantEvent(t, w, watch.Added, "c0")
	wantEvent(t, w, watch.Added, "c1")
	wantEnd(t, w)
	w = watchConfigMaps(t, srv, metav1.ListOptions{})
	for i := range 5 {
		wantEvent(t, w, watch.Added, fmt.Sprint("c", i))
	}
	if got := srv.Requests()[0]; got.Events != 2 || !got.Done {
		t.Errorf("logged %+v, want 2 events", got)
	}
}

func TestInject_DropAfterBytes(t *testing.T) {
	srv := newServer(t, Options{})
	fill(t, srv, 5)
	srv.Inject(Fault{DropAfterBytes: 100})
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/ns/configmaps/c0"} {
		reply, err := http.Get(srv.URL() + path)
		check(t, err)
		body, err := io.ReadAll(reply.Body)
		if len(body) != 100 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: read %d bytes and %v, want 100 and an unexpected EOF", path, len(body), err)
		}
		check(t, reply.Body.Close())
	}
	for _, r := range srv.Requests() {
		if r.Bytes != 100 {
			t.Errorf("%s: logged %d bytes", r.Path, r.Bytes)
		}
	}
}

func TestInject_NoBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		srv.Inject(Fault{NoBookmarks: true})
		w := watchConfigMaps(t, srv, metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: new(int64(300))})
		end := wantEvent(t, w, watch.Bookmark, "")
		if end.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("got %v, want the end of initial events all the same", end)
		}
		fill(t, srv, 1)
		wantEvent(t, w, watch.Added, "c0")
		if e, ok := <-w.ResultChan(); ok {
			t.Errorf("got %v", e)
		}
	})
}

func TestInject_Body(t *testing.T) {
	srv := newServer(t, Options{})
	srv.Inject(Fault{Body: "<html>", Times: 1})
	srv.Inject(Fault{Body: "{", Status: http.StatusBadGateway, ContentType: "application/json", Times: 1})
	for _, want := range []string{"200 text/html <html>", "502 application/json {"} {
		reply, err := http.Get(srv.URL() + "/api/v1/configmaps")
		check(t, err)
		body, err := io.ReadAll(reply.Body)
		check(t, errors.Join(err, reply.Body.Close()))
		if got := fmt.Sprint(reply.StatusCode, " ", reply.Header.Get("Content-Type"), " ", string(body)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInject_Cause(t *testing.T) {
	srv := newServer(t, Options{})
	srv.Inject(Fault{Status: http.StatusGatewayTimeout, Cause: metav1.CauseTypeResourceVersionTooLarge})
	_, err := client(t, srv).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestInject_EndAfter_SendsWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t, Options{InMemory: true})
		fill(t, srv, 1)
		srv.Inject(Fault{Verb: "watch", EndAfter: 5 * time.Second})
		for timeout, want := range map[int64]time.Duration{3: 3 * time.Second, 7: 5 * time.Second} {
			start := time.Now()
			w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: &timeout})
			wantEvent(t, w, watch.Added, "c0")
			wantEnd(t, w)
			if got := time.Since(start); got != want {
				t.Errorf("a watch of %d s ended after %s, want %s", timeout, got, want)
			}
		}
	})
}

func TestInject_MatchAndOrder(t *testing.T) {
	srv := newServer(t, Options{})
	first := srv.Inject(Fault{Status: http.StatusForbidden, Match: func(r Request) bool { return r.Namespace == "a" }})
	second := srv.Inject(Fault{Status: http.StatusInternalServerError, Verb: "list"})
	list := func(namespace string) error {
		_, err := client(t, srv).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list("a"); !apierrors.IsForbidden(err) {
		t.Errorf("namespace a: %v", err)
	}
	if err := list("b"); !apierrors.IsInternalError(err) {
		t.Errorf("namespace b: %v", err)
	}
	if first.Hits() != 1 || second.Hits() != 1 {
		t.Errorf("hits are %d and %d, want 1 and 1", first.Hits(), second.Hits())
	}
}

func TestRequests_CountsWhatWasSent(t *testing.T) {
	srv := newServer(t, Options{})
	fill(t, srv, 3)
	reply, err := http.Get(srv.URL() + "/api/v1/configmaps?limit=2")
	check(t, err)
	body, err := io.ReadAll(reply.Body)
	check(t, errors.Join(err, reply.Body.Close()))
	w := watchConfigMaps(t, srv, metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	for range 4 {
		_, err := next(w)
		check(t, err)
	}
	_, err = client(t, srv).CoreV1().ConfigMaps("ns").Get(t.Context(), "c0", metav1.GetOptions{})
	check(t, err)
	check(t, client(t, srv).CoreV1().ConfigMaps("ns").Delete(t.Context(), "c0", metav1.DeleteOptions{}))

	all := srv.Requests()
	verbs := make([]string, 0, len(all))
	for _, r := range all {
		verbs = append(verbs, r.Verb)
	}
	if want := []string{"list", "watch", "get", "delete"}; !slices.Equal(verbs, want) {
		t.Errorf("logged %v, want %v", verbs, want)
	}
	if r := all[0]; r.Bytes != int64(len(body)) || r.Items != 2 || r.Query.Get("limit") != "2" || r.Path != "/api/v1/configmaps" {
		t.Errorf("logged %+v for a body of %d bytes", r, len(body))
	}
	if r := all[1]; r.Events < 3 || r.Items != 3 || r.Done || r.Status != http.StatusOK {
		t.Errorf("logged %+v for a running watch", r)
	}
	if r := all[2]; r.Name != "c0" || r.Namespace != "ns" || r.Version != "v1" || !strings.HasPrefix(r.UserAgent, "apitest.test/") {
		t.Errorf("logged %+v for a GET", r)
	}
	counts := CountRequests(all)
	if want := all[0].Bytes + all[1].Bytes + all[2].Bytes + all[3].Bytes; counts.Bytes != want {
		t.Errorf("counted %d bytes, want %d", counts.Bytes, want)
	}
	counts.Bytes = 0
	if want := (Counts{Lists: 1, Watches: 1, WatchLists: 1, Gets: 1, FullLists: 2, Writes: 1, Items: 5}); counts != want {
		t.Errorf("counted %+v, want %+v", counts, want)
	}
	srv.ResetRequests()
	if got := srv.Counts(); got != (Counts{}) {
		t.Errorf("counted %+v after the reset", got)
	}
}
