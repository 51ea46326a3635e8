package reflector

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// There are servers that accept any version to watch from, and begin with what happens
// next (kptdev/kpt#1101). What has happened since a version, they do not tell. A server
// that sends bookmarks does, be it only the one that ends a streamed list. So does one
// that refuses a version as too old: it knows how far back it remembers.

// errNoReplay says that a watch cannot go on from where another has ended.
var errNoReplay = errors.New("the server may not tell what has happened between two watches")

const (
	// oldestVersion is the oldest version that there is. etcd's first is forgotten
	// five minutes later.
	oldestVersion = "1"
	// replayPatience is how long an answer may take that says so.
	replayPatience = 2 * time.Second
)

// replays reports whether the server is known to tell what has happened since a version.
// If that is not known it is asked, once, for what it must have forgotten.
func (r *Reflector) replays(ctx context.Context) bool {
	known := r.Status().Replays
	if known || r.run.replaysAsked {
		return known
	}
	r.run.replaysAsked = true
	known = r.forgets(ctx)
	klog.FromContext(ctx).V(2).Info("Asked whether the server remembers what it has forgotten", "type", r.description, "replays", known)
	r.update(func(s *Status) { s.Replays = s.Replays || known })
	return known
}

// forgets reports whether the server refuses to watch from the oldest version.
func (r *Reflector) forgets(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := interruptible(ctx, func() (watch.Interface, error) {
		return r.lw.WatchWithContext(ctx, metav1.ListOptions{
			ResourceVersion: oldestVersion,
			TimeoutSeconds:  ptr.To(int64(replayPatience / time.Second)),
		})
	}, func(late watch.Interface) { late.Stop() })
	if err != nil {
		return isExpired(err)
	}
	defer stopWatch(request{w, cancel}) // which ends the request first
	select {
	case event, ok := <-w.ResultChan():
		return ok && event.Type == watch.Error && isExpired(apierrors.FromObject(event.Object))
	case <-r.clock.After(replayPatience):
	case <-ctx.Done():
	}
	return false
}
