package informer_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/internal/apitest"
)

// wrongAnswer is what a server, or what stands in front of it, may say instead of
// what it is asked for. None says anything about the objects.
type wrongAnswer struct {
	name string
	// fault is what requests for the collection are answered with.
	fault apitest.Fault
	// denied says that the server is there and says no.
	denied bool
	// busy says that the server has too much to do.
	busy bool
}

// inJSON is an answer that claims to be the API's.
func inJSON(body string) apitest.Fault {
	return apitest.Fault{Body: body, ContentType: runtime.ContentTypeJSON}
}

var wrongAnswers = []wrongAnswer{
	{name: "unauthorized", fault: apitest.Fault{Status: http.StatusUnauthorized}, denied: true},
	{name: "forbidden", fault: apitest.Fault{Status: http.StatusForbidden}, denied: true},
	{name: "not found", fault: apitest.Fault{Status: http.StatusNotFound}, denied: true},
	{name: "too many requests", fault: apitest.Fault{Status: http.StatusTooManyRequests}, busy: true},
	{name: "internal error", fault: apitest.Fault{Status: http.StatusInternalServerError}},
	{name: "unavailable", fault: apitest.Fault{Status: http.StatusServiceUnavailable}, busy: true},
	{name: "timeout", fault: apitest.Fault{Status: http.StatusGatewayTimeout}, busy: true},
	{name: "HTML with 502", fault: apitest.Fault{Body: "<html>bad gateway</html>", Status: http.StatusBadGateway}},
	{name: "HTML with 200", fault: apitest.Fault{Body: "<html>sign in</html>"}},
	{name: "text that claims to be JSON", fault: inJSON("sign in")},
	{name: "an empty answer", fault: inJSON(" ")},
	{name: "truncated JSON", fault: inJSON(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"99"},"items":[{"meta`)},
	{name: "JSON of something else", fault: inJSON(`{}`)},
	{name: "a status", fault: inJSON(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)},
	{name: "another kind", fault: inJSON(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"99"}}`)},
	{name: "cut in the middle", fault: apitest.Fault{DropAfterBytes: 20}},
}

// eachWrongAnswer runs a test for each of them in both residencies, with three objects.
func eachWrongAnswer(t *testing.T, test func(t *testing.T, w *world, a wrongAnswer)) {
	t.Helper()
	for _, a := range wrongAnswers {
		a.fault.Resource = configMaps.Resource
		t.Run(a.name, func(t *testing.T) {
			bothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c")
				test(t, w, a)
			})
		})
	}
}

const (
	outage = 10 * time.Minute
	// afterwards is more than the longest pause between two attempts.
	afterwards = 2 * time.Minute
	// maxFailures is how many watches in a row fail before there is a list.
	maxFailures = 5
)

// attempts is a bound of how often something is tried in a time: client-go's backoff
// begins anew every two minutes, within which it makes nine pauses at most.
func attempts(d time.Duration) int { return 9 * (1 + int(d/(2*time.Minute))) }

// TestFaults_AtStart checks that a stored copy outlives whatever is said instead of
// an answer: it can be read, nobody is told anything or takes it for current, the
// status says what is wrong, and once the server is itself again the start goes on
// as if nothing had happened.
func TestFaults_AtStart(t *testing.T) {
	eachWrongAnswer(t, func(t *testing.T, w *world, a wrongAnswer) {
		w.start().synced().kill()
		w.delete("a")
		w.update("b", "new")
		fault := w.server.Inject(a.fault)
		p := w.start()
		defer p.stop()
		time.Sleep(outage)
		p.holds("a", "b", "c")
		w.wantEvents(p.recorder)
		p.complains(a)
		if p.informer.HasSynced() || p.status().Confirmed {
			t.Errorf("synced: %+v", p.status())
		}
		if got := w.count(isOurs); got > 3*attempts(outage) {
			t.Errorf("%d requests in %s", got, outage)
		}

		fault.Remove()
		w.server.ResetRequests()
		time.Sleep(afterwards)
		w.wantEvents(p.recorder, "initial a", "delete a", "initial b", "initial c")
		p.converged()
		if got := p.lists(); got != 0 || !p.status().Confirmed {
			t.Errorf("%d lists, status %+v", got, p.status())
		}
	})
}

// TestFaults_WhileRunning is the same for an informer that has synced: what was
// told and can be read stays.
func TestFaults_WhileRunning(t *testing.T) {
	eachWrongAnswer(t, func(t *testing.T, w *world, a wrongAnswer) {
		p := w.start().synced()
		defer p.stop()
		p.recorder.take()
		fault := w.server.Inject(a.fault)
		w.server.EndWatches()
		synctest.Wait()
		w.delete("a")
		w.update("b", "new")
		w.server.ResetRequests()
		time.Sleep(outage)
		p.holds("a", "b", "c")
		w.wantEvents(p.recorder)
		p.complains(a)
		if got := w.count(isOurs); got > 3*attempts(outage) {
			t.Errorf("%d requests in %s", got, outage)
		}

		fault.Remove()
		w.server.ResetRequests()
		time.Sleep(afterwards)
		w.wantEvents(p.recorder, "delete a", "update b")
		p.converged()
		if got := p.lists(); got != 0 {
			t.Errorf("%d lists, status %+v", got, p.status())
		}
	})
}

// holds checks which objects can be read.
func (p *process) holds(names ...string) {
	p.w.t.Helper()
	synctest.Wait()
	for _, name := range names {
		if _, exists, err := p.informer.GetStore().GetByKey("default/" + name); !exists || err != nil {
			p.w.t.Errorf("%s: exists %v, %v", name, exists, err)
		}
	}
	if got := len(p.informer.GetStore().List()); got != len(names) {
		p.w.t.Errorf("%d objects, want %d", got, len(names))
	}
}

// complains checks that the status says that something is wrong, and whether the
// server is there.
func (p *process) complains(a wrongAnswer) {
	p.w.t.Helper()
	s := p.status()
	if s.Err == nil {
		p.w.t.Errorf("no error in the status %+v", s)
	}
	if reached := s.Staleness < afterwards; reached != a.denied {
		p.w.t.Errorf("the server last answered %s ago; denied: %v", s.Staleness, a.denied)
	}
}

// TestFaults_OfWatches checks what can be listed and not watched: it stays as fresh
// as lists make it, one after every fifth failure, which a server that says it has
// too much to do is spared.
func TestFaults_OfWatches(t *testing.T) {
	eachWrongAnswer(t, func(t *testing.T, w *world, a wrongAnswer) {
		p := w.start().synced()
		defer p.stop()
		a.fault.Verb = "watch"
		fault := w.server.Inject(a.fault)
		w.server.EndWatches()
		synctest.Wait()
		w.delete("a")
		w.server.ResetRequests()
		time.Sleep(outage)
		if a.busy {
			p.holds("a", "b", "c")
		} else {
			p.holds("b", "c")
		}
		// A list in vain as a stream is one in pages, too.
		if got := w.count(isPage); a.busy != (got == 0) || got > attempts(outage)/maxFailures+1 {
			t.Errorf("%d lists in %s, reason %q", got, outage, p.status().ListReason)
		}
		fault.Remove()
		time.Sleep(afterwards)
		p.converged()
	})
}

// TestFaults_RetryAfter checks that a server which says when to come back is not
// bothered before, and that it is not listed because of that.
func TestFaults_RetryAfter(t *testing.T) {
	const wait = 40 * time.Second
	for name, test := range map[string]func(w *world, inject func()) *process{
		"at the start": func(w *world, inject func()) *process {
			w.start().synced().kill()
			w.delete("a")
			inject()
			return w.start()
		},
		"while running": func(w *world, inject func()) *process {
			p := w.start().synced()
			inject()
			w.server.EndWatches()
			synctest.Wait()
			w.delete("a")
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c")
				var fault *apitest.Injected
				p := test(w, func() {
					fault = w.server.Inject(apitest.Fault{Resource: configMaps.Resource, Status: http.StatusTooManyRequests, RetryAfter: wait})
					w.server.ResetRequests()
				})
				defer p.stop()
				time.Sleep(outage)
				p.holds("a", "b", "c")
				last := time.Time{}
				for _, r := range w.server.Requests() {
					if gap := r.Start.Sub(last); gap < wait {
						t.Errorf("%s %s after %s", r.Verb, r.Query, gap)
					}
					last = r.Start
				}
				fault.Remove()
				time.Sleep(afterwards)
				p.converged()
				if got := p.lists(); got != 0 {
					t.Errorf("%d lists", got)
				}
			})
		})
	}
}

// TestFaults_ShortWatches checks watches that end long before their time, as behind
// proxies with a limit: at once, in the middle of a round, and after it. Changes get
// through. What ends within a second counts as failed; what lasts longer is followed
// by a probe and the next watch, without a list.
func TestFaults_ShortWatches(t *testing.T) {
	const changes = 100
	for after, test := range map[time.Duration]struct{ lists, watches int }{
		time.Nanosecond:         {lists: attempts(outage) / maxFailures, watches: attempts(outage) + changes},
		500 * time.Millisecond:  {lists: attempts(outage) / maxFailures, watches: attempts(outage) + changes},
		1500 * time.Millisecond: {watches: int(outage / (1500 * time.Millisecond))},
		10 * time.Second:        {watches: int(outage/(10*time.Second)) + 1},
	} {
		t.Run(after.String(), func(t *testing.T) {
			bothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b", "c")
				w.start().synced().kill()
				w.delete("a")
				w.server.Inject(apitest.Fault{Match: isResumed, EndAfter: after})
				p := w.start().synced()
				defer p.stop()
				w.wantEvents(p.recorder, "initial a", "delete a", "initial b", "initial c")
				if got := p.lists(); got != 0 {
					t.Errorf("%d lists at the start", got)
				}
				w.server.ResetRequests()
				for n := range changes {
					w.create(name(n))
					time.Sleep(outage / changes)
				}
				lists, watches, probes := p.lists(), w.count(isResumed), w.count(isProbe)
				if lists > test.lists || watches > test.watches || probes > watches+1 {
					t.Errorf("%d lists, want up to %d; %d watches, want up to %d; %d probes", lists, test.lists, watches, test.watches, probes)
				}
				time.Sleep(afterwards)
				p.converged()
			})
		})
	}
}

// TestFaults_ShortWatches_NothingHappens checks that rounds which end at once lead to
// one list, and that the next start does not take that for a lack of bookmarks.
func TestFaults_ShortWatches_NothingHappens(t *testing.T) {
	bothResidencies(t, func(t *testing.T, w *world) {
		w.create("a")
		w.start().synced().kill()
		w.server.Inject(apitest.Fault{Match: isResumed, EndAfter: 1})
		for n := range 2 {
			// Of another resource: the versions differ, and there is nothing to say.
			if err := w.server.Create(&corev1.Secret{ObjectMeta: configMap(name(n), "").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
			p := w.start().synced()
			p.converged()
			if got := p.lists(); got != 1 {
				t.Errorf("%d lists, want 1", got)
			}
			p.kill()
		}
		if got := w.count(isResumed); got != 8 {
			t.Errorf("%d rounds before the list of the second start, want 8", got)
		}
	})
}
