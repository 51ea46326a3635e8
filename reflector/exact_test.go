package reflector_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/fifo"
	"github.com/warmcache/warmcache/reflector"
)

var errBroken = errors.New("broken disk")

// lost is what the queue says of a consumer that has lost what it had at rv.
func lost(rv string) error {
	return fmt.Errorf("applying: %w", &fifo.LostError{RV: rv, Err: errBroken})
}

// TestReflector_ExactList checks what follows when the consumer has lost its objects.
func TestReflector_ExactList(t *testing.T) {
	exact := []string{"exact 12", "commit 12 [p]", "caught up", "watch 12"}
	current := []string{"exact 12", "list", "commit 10 [p]", "caught up", "watch 10"}
	refusal := func(err error) func(*fake) { return func(f *fake) { f.exactErrs = []error{err} } }
	for _, test := range []struct {
		name   string
		script func(f *fake)
		rv     string
		pauses time.Duration
		want   []string
	}{
		{name: "granted", want: exact},
		{name: "forgotten", script: refusal(expired()), want: current},
		{name: "not reached", script: refusal(tooLarge()), want: current},
		{name: "bad request", script: refusal(apierrors.NewBadRequest("no")), want: current},
		{name: "of another version", script: func(f *fake) {
			f.exact = func(metav1.ListOptions) (runtime.Object, error) { return listOf("13"), nil }
		}, want: current},
		{name: "with what cannot be used", script: func(f *fake) {
			f.exact = func(o metav1.ListOptions) (runtime.Object, error) { return &metav1.Status{}, nil }
		}, want: current},
		{name: "not comparable", rv: "x", want: []string{"list", "commit 10 [p]", "caught up", "watch 10"}},
		{name: "unversioned", rv: "", want: []string{"list", "commit 10 [p]", "caught up", "watch 10"}},

		{name: "refused to everybody", script: func(f *fake) {
			f.exactErrs = []error{
				apierrors.NewForbidden(resource, "", nil), apierrors.NewUnauthorized("who"), apierrors.NewNotFound(resource, ""),
				apierrors.NewTooManyRequests("busy", 1), syscall.ECONNREFUSED, errors.New("down"),
			}
		}, pauses: 6, want: append(slices.Repeat([]string{"exact 12"}, 6), exact...)},
		{name: "failing now and then", script: func(f *fake) { f.exactErrs = repeat(internal(), 4) }, pauses: 4, want: append(slices.Repeat([]string{"exact 12"}, 4), exact...)},
		{name: "failing always", script: func(f *fake) { f.exactErrs = repeat(internal(), 10) }, pauses: 4, want: append(slices.Repeat([]string{"exact 12"}, 4), current...)},
		{name: "and the consumer fails again", script: func(f *fake) {
			f.added = func() error { f.added = nil; f.failures <- lost("12"); return errBroken }
		}, pauses: 1, want: append([]string{"exact 12"}, exact...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = reflector.Origin{}
				stop := f.start()
				time.Sleep(pause / 10)
				f.want("list", "commit 10 []", "caught up", "watch 10")
				f.set(func() { f.journal, f.items = nil, objects("p@1") })
				if test.script != nil {
					f.set(func() { test.script(f) })
				}
				rv := test.rv
				if test.want[0] == "exact 12" {
					rv = "12"
				}
				f.failures <- lost(rv)
				time.Sleep(pause + pause*test.pauses + pause/10) //nolint:durationcheck // a number of pauses
				f.want(test.want...)
				stop()
			})
		})
	}
}

// TestReflector_ExactList_IsNoProof checks that a list of a version before that of
// the server at the start does not count as caught up.
func TestReflector_ExactList_IsNoProof(t *testing.T) {
	caughtUp := []string{"exact 5", "commit 5 [p]", "watch 5", "update a@6", "bookmark @10", "caught up"}
	for name, test := range map[string]struct {
		at   time.Duration
		want []string
	}{
		"lost before the probe":  {0, slices.Insert(slices.Clone(caughtUp), 2, "probe")},
		"lost while catching up": {pause, append([]string{"probe", "watch 5", "update b@6"}, caughtUp...)},
		"lost behind the proof":  {2 * pause, append([]string{"probe", "watch 5", "update b@6", "bookmark @10", "caught up"}, caughtUp...)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.items = objects("p@1")
				f.streams = []stream{{events: []watch.Event{modified("b", "6"), bookmark("10")}, every: pause * 3 / 4}}
				if test.at == 0 {
					f.streams = nil
				}
				f.streams = append(f.streams, events(modified("a", "6"), bookmark("10")))
				time.AfterFunc(test.at, func() { f.failures <- lost("5") })
				synctest.Wait()
				stop := f.start()
				time.Sleep(test.at)
				time.Sleep(2 * pause)
				if !f.r.Status().CaughtUp {
					t.Error("not caught up")
				}
				stop()
				f.want(test.want...)
			})
		})
	}
}

// TestReflector_ExactList_Once checks that a list answers one loss: a later list is
// of the current state, and a later loss has as many attempts.
func TestReflector_ExactList_Once(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin = reflector.Origin{}
		f.exactErrs = repeat(internal(), 4)
		f.streams = []stream{{}, events(failure(expired()))}
		stop := f.start()
		time.Sleep(pause / 10)
		f.failures <- lost("12")
		time.Sleep(7 * pause)
		f.set(func() { f.exactErrs = repeat(internal(), 4) })
		f.failures <- lost("10")
		time.Sleep(6 * pause)
		stop()
		f.want(slices.Concat(
			[]string{"list", "commit 10 []", "caught up", "watch 10"},
			slices.Repeat([]string{"exact 12"}, 5), []string{"commit 12 []", "caught up", "watch 12"},
			[]string{"list", "commit 10 []", "caught up", "watch 10"},
			slices.Repeat([]string{"exact 10"}, 5), []string{"commit 10 []", "caught up", "watch 10"},
		)...)
	})
}

// TestReflector_ListGivenUp checks that a list whose consumer has failed is not read
// in another way, but made again as the failure says.
func TestReflector_ListGivenUp(t *testing.T) {
	for name, streaming := range map[string]bool{"stream": true, "list": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				f.options.Origin = reflector.Origin{}
				f.streaming, f.items = streaming, objects("p@1")
				if streaming {
					f.streams = []stream{events(added("a", "3"))}
				}
				f.added = func() error { f.added = nil; f.failures <- lost("7"); return errBroken }
				f.run(pause + pause/10)
				f.want(name, "exact 7", "commit 7 [p]", "probe", "watch 7")
				if len(f.handled) > 0 {
					t.Errorf("the handler was told %v", f.handled)
				}
			})
		})
	}
}

func TestReflector_ExactList_InPages(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		first := listOf("5", objects("a@1")...)
		first.Continue = "2"
		f.exact = func(metav1.ListOptions) (runtime.Object, error) { return first, nil }
		f.lists = func(metav1.ListOptions) (runtime.Object, error) { return listOf("5", objects("b@2")...), nil }
		f.failures <- lost("5")
		f.run(pause / 10)
		f.want("exact 5", "list2", "commit 5 [a b]", "probe", "watch 5")
		want := []metav1.ListOptions{
			{Limit: 500, ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			{Limit: 500, Continue: "2"},
		}
		if diff := cmp.Diff(want, f.asked[:2]); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if s := f.r.Status(); s.RV != "5" || s.ServerRV != "10" || s.Lists != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestReflector_ExactList_WhosePagesExpire checks that it is not read whole instead.
func TestReflector_ExactList_WhosePagesExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		first := listOf("5", objects("a@1")...)
		first.Continue = "2"
		f.exact = func(metav1.ListOptions) (runtime.Object, error) { return first, nil }
		f.listErrs = []error{expired()}
		f.failures <- lost("5")
		f.run(pause / 10)
		f.want("exact 5", "list2", "abort [a]", "list", "commit 10 []", "caught up", "watch 10")
	})
}

// TestReflector_ExactList_OfAnotherCluster checks that what was stored of another
// cluster is not asked for.
func TestReflector_ExactList_OfAnotherCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.options.Origin.Cluster, f.options.Cluster = "c1", constant("c2")
		f.failures <- lost("5")
		f.run(pause / 10)
		f.want("reset", "list", "commit 10 []", "caught up", "watch 10")
	})
}
