package reflector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/warmcache/warmcache/reflector"
)

// deaf is a server behind a client that knows no context: an answer takes an hour.
type deaf struct {
	*fake
	panics bool
}

func (d deaf) IsWatchListSemanticsUnSupported() bool { return true }

func (d deaf) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := d.fake.WatchWithContext(context.WithoutCancel(ctx), o)
	<-time.After(time.Hour)
	if d.panics {
		w.Stop()
		panic("broken ListerWatcher")
	}
	return w, err
}

// TestReflector_StopsAtOnce stops wherever a reflector can wait.
func TestReflector_StopsAtOnce(t *testing.T) {
	down := repeat(errors.New("down"), 10)
	busy := repeat(apierrors.NewTooManyRequests("busy", 1), 10)
	for _, test := range []struct {
		name   string
		script func(f *fake)
		want   string
	}{
		{"probing", func(f *fake) { f.options.Cluster = stall }, ""},
		{"listing", func(f *fake) {
			f.options.Origin = reflector.Origin{}
			f.lists = func(metav1.ListOptions) (runtime.Object, error) {
				<-time.After(time.Hour)
				return listOf("1"), nil
			}
		}, "list"},
		{"streaming a list", func(f *fake) {
			f.options.Origin = reflector.Origin{}
			f.streaming, f.streams = true, []stream{events(added("a", "1"))}
		}, "stream"},
		{"resuming", func(f *fake) { f.endless = true }, "watch 5"},
		{"opening a watch", func(f *fake) { f.options.ListerWatcher = deaf{fake: f} }, "watch 5"},
		{"opening a watch that fails later", func(f *fake) { f.options.ListerWatcher, f.watchErrs = deaf{fake: f}, down }, "watch 5"},
		{"opening a watch that panics later", func(f *fake) { f.options.ListerWatcher = deaf{f, true} }, "watch 5"},
		{"watching", func(f *fake) { f.rv, f.endless = "5", true }, "watch 5"},
		{"after a probe that failed", func(f *fake) { f.probeErrs = down }, "probe"},
		{"after a list that failed", func(f *fake) { f.options.Origin, f.listErrs = reflector.Origin{}, down }, "list"},
		{"after a watch that failed", func(f *fake) { f.rv, f.watchErrs = "5", down }, "watch 5"},
		{"after a watch at a busy server", func(f *fake) { f.rv, f.watchErrs = "5", busy }, "watch 5"},
		{"after a streamed list at a busy server", func(f *fake) {
			f.options.Origin = reflector.Origin{}
			f.streaming, f.watchErrs = true, busy
		}, "stream"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				test.script(f)
				stop := f.start()
				synctest.Wait()
				if n := len(f.journal); n == 0 != (test.want == "") || n > 0 && f.journal[n-1] != test.want {
					t.Fatalf("did not get where it was to be stopped: %v", f.journal)
				}
				before := time.Now()
				f.cancel()
				synctest.Wait()
				if f.r.Status().Phase != reflector.PhaseStopped {
					t.Error("did not stop at once")
				}
				time.Sleep(2 * time.Hour) // for what takes that long, and for its watch to be stopped
				stop()
				if waited := time.Since(before); waited != 2*time.Hour {
					t.Errorf("took %s", waited)
				}
			})
		})
	}
}

func stall(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// TestReflector_StoppedBefore checks that a reflector which is started too late
// asks for nothing.
func TestReflector_StoppedBefore(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reflector.New(f.options).Run(ctx)
	f.want()
}
