package informer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
)

// inBothResidencies runs a test of an informer with a store.
func inBothResidencies(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, m := range map[string]maker{"in memory": persistent, onDiskName: onDisk} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.make, w.onDisk = m, name == onDiskName
				test(t, w)
			})
		})
	}
}

func stale(o *informer.Options) { o.Start = informer.Stale(5 * time.Second) }

// startStale leaves a and b in the store, then deletes a and creates c while no process
// runs, and starts one that cannot reach the server.
func (w *world) startStale() *process {
	w.t.Helper()
	w.create("a", "b")
	w.start().synced().kill()
	w.delete("a")
	w.create("c")
	if err := w.server.Down(); err != nil {
		w.t.Fatal(err)
	}
	return w.start(stale).synced()
}

// linkBack lets the process reach the server, and waits for the proof.
func (p *process) linkBack() {
	p.w.t.Helper()
	if err := p.w.server.Up(); err != nil {
		p.w.t.Fatal(err)
	}
	<-informer.ConfirmedChecker(p.informer).Done()
}

// answer says what a read of an object has led to.
func answer(obj *corev1.ConfigMap, err error) string {
	switch {
	case errors.Is(err, informer.ErrUnconfirmed) && apierrors.IsNotFound(err):
		return "both: " + err.Error()
	case errors.Is(err, informer.ErrUnconfirmed):
		return "unconfirmed"
	case apierrors.IsNotFound(err):
		return "not found"
	case err != nil:
		return err.Error()
	}
	return "found " + obj.Name
}

// reads are ways to read one object of the informer.
func (p *process) reads() map[string]func(name string) string {
	lister := corelisters.NewConfigMapLister(p.informer.GetIndexer())
	return map[string]func(name string) string{
		"by key": func(name string) string {
			return answer(informer.GetByKey[*corev1.ConfigMap](p.informer, "default/"+name))
		},
		"lister": func(name string) string {
			var found *corev1.ConfigMap
			err := informer.Read(p.informer, func() (err error) {
				found, err = lister.ConfigMaps("default").Get(name)
				return err
			})
			return answer(found, err)
		},
		"through a wrapper": func(name string) string {
			typed := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](p.informer)
			return answer(informer.GetByKey[*corev1.ConfigMap](typed, "default/"+name))
		},
	}
}

func (p *process) wantReads(when string, want map[string]string) {
	p.w.t.Helper()
	for how, read := range p.reads() {
		for name, w := range want {
			if got := read(name); got != w {
				p.w.t.Errorf("%s, %s: %s is %s, want %s", when, how, name, got, w)
			}
		}
	}
}

// TestConfirmation_NotFoundIsNotBelieved checks what is said of an object that was
// created while nobody looked.
func TestConfirmation_NotFoundIsNotBelieved(t *testing.T) {
	inBothResidencies(t, func(t *testing.T, w *world) {
		p := w.startStale()
		defer p.stop()
		p.wantReads("offline", map[string]string{"a": "found a", "b": "found b", "c": "unconfirmed", "d": "unconfirmed"})
		if err := informer.CheckConfirmed(p.informer); !errors.Is(err, informer.ErrUnconfirmed) {
			t.Errorf("offline: %v", err)
		}
		if cache.IsDone(informer.ConfirmedChecker(p.informer)) || !p.informer.HasSynced() {
			t.Error("offline: confirmed, or not synced")
		}

		p.linkBack()
		p.wantReads("confirmed", map[string]string{"a": "not found", "b": "found b", "c": "found c", "d": "not found"})
		if err := informer.CheckConfirmed(p.informer); err != nil {
			t.Errorf("confirmed: %v", err)
		}
		w.wantEvents(p.recorder, "initial a", "initial b", "delete a", "add c")
	})
}

// TestConfirmation_IsLookedAtBeforeTheRead lets the proof arrive between a read and its
// end: what was not found then was not found before the proof.
func TestConfirmation_IsLookedAtBeforeTheRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.startStale()
		defer p.stop()
		err := informer.Read(p.informer, func() error {
			_, err := corelisters.NewConfigMapLister(p.informer.GetIndexer()).ConfigMaps("default").Get("c")
			p.linkBack()
			return err
		})
		if got := answer(nil, err); got != "unconfirmed" {
			t.Errorf("%s: %v", got, err)
		}
	})
}

// TestConfirmation_EndsWithTheProof checks when the checker is done under each policy,
// while the server resumes the watch and sends no proof for some time.
func TestConfirmation_EndsWithTheProof(t *testing.T) {
	for _, test := range []struct {
		policy informer.StartPolicy
		early  bool
	}{
		{informer.Confirmed, false}, {informer.Resumed, true}, {informer.Stale(time.Minute), false},
	} {
		t.Run(test.policy.String(), func(t *testing.T) {
			inBothResidencies(t, func(t *testing.T, w *world) {
				w.create("a", "b")
				w.start().synced().kill()
				// Something that the watch does not show: only a bookmark would.
				if err := w.server.Create(apitest.Pod("default", "elsewhere", 1)); err != nil {
					t.Fatal(err)
				}
				fault := w.server.Inject(apitest.Fault{Verb: "watch", NoBookmarks: true})
				p := w.start(func(o *informer.Options) { o.Start = test.policy })
				defer p.stop()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				s := p.status()
				if s.Confirmed || cache.IsDone(informer.ConfirmedChecker(p.informer)) || s.Synced != test.early {
					t.Errorf("without a proof: %+v", s)
				}
				if got := answer(informer.GetByKey[*corev1.ConfigMap](p.informer, "default/c")); got != "unconfirmed" {
					t.Errorf("without a proof: %s", got)
				}
				fault.Remove()
				p.synced()
				<-informer.ConfirmedChecker(p.informer).Done()
				if s := p.status(); !s.Confirmed || !s.Synced || s.Lists != 0 {
					t.Errorf("with a proof: %+v", s)
				}
			})
		})
	}
}

// TestConfirmation_NeverOfAStoppedInformer checks that waiting for the proof is not
// ended by the informer.
func TestConfirmation_NeverOfAStoppedInformer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.startStale()
		p.stop()
		p.wantReads("stopped", map[string]string{"b": "found b", "c": "unconfirmed"})
		if cache.IsDone(informer.ConfirmedChecker(p.informer)) {
			t.Error("confirmed by its end")
		}
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestConfirmation_OfOtherInformers checks that client-go's, which has nothing before
// its first list, is confirmed when it has synced.
func TestConfirmation_OfOtherInformers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.make = stock
		w.create("a")
		p := w.prepare()
		p.wantReads("before the start", map[string]string{"a": "unconfirmed"})
		p.recorder = p.handle()
		p.run()
		defer p.stop()
		p.synced()
		p.wantReads("synced", map[string]string{"a": "found a", "b": "not found"})
		if err := informer.CheckConfirmed(p.informer, w.prepare().informer); !errors.Is(err, informer.ErrUnconfirmed) {
			t.Errorf("one of two: %v", err)
		}
	})
}

func TestRead_PassesOtherErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.prepare() // does not run
		conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("why"))
		for _, want := range []error{nil, conflict, errors.New("other")} {
			if got := informer.Read(p.informer, func() error { return want }); got != want { //nolint:errorlint // the very error
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
}

func TestGetByKey_Errors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("a")
		p := w.start().synced()
		defer p.stop()
		if pod, err := informer.GetByKey[*corev1.Pod](p.informer, "default/a"); pod != nil || err == nil || apierrors.IsNotFound(err) {
			t.Errorf("as another type: %v, %v", pod, err)
		}
		if obj, err := informer.GetByKey[metav1.Object](p.informer, "default/a"); err != nil || obj.GetName() != "a" {
			t.Errorf("as an interface: %v, %v", obj, err)
		}
		_, err := informer.GetByKey[*corev1.ConfigMap](p.informer, "default/b")
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Details.Kind != "configmaps" || status.Status().Details.Name != "b" {
			t.Errorf("not found: %#v", err)
		}
		for _, key := range []string{"", "b", "default/b/c"} {
			if _, err := informer.GetByKey[*corev1.ConfigMap](p.informer, key); !apierrors.IsNotFound(err) {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}
