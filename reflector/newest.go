package reflector

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// A server that was restored from a backup, and has since passed our version, is
// accepted by nothing but what it says of objects. What was written last is what a
// backup lacks first. So the probe that precedes a watch asks for the newest object
// that the server is known to have had. If it has another version of it, or none,
// the watch has to tell how that came about before it has caught up with the probe.

// historyError says that the server does not continue what was read from it, so that it
// is listed.
type historyError struct{ reason string }

func (e historyError) Error() string { return e.reason + "; listing" }

// otherHistory begins the reason for such a list.
const otherHistory = "the server's history is not the one that was read before: "

// newestObject is what is known of the newest object.
type newestObject struct {
	ref ObjectRef
	// refused is set when the server does not select by name.
	refused bool
	// doubt is what the watch has to explain, if anything.
	doubt doubt
	// presence is what the last answer said of the object of that UID.
	presence presence
}

type presence int

const (
	unknown presence = iota
	present
	absent
)

// doubt is something about an object that an event must explain before the watch has
// gone past a version.
type doubt struct{ key, what, until string }

// probeNewest is probe, and compares the newest object with the server's.
func (r *Reflector) probeNewest(ctx context.Context) (string, error) {
	n := &r.run.newest
	n.doubt, n.presence = doubt{}, unknown
	if n.ref == (ObjectRef{}) || n.refused || r.hasNoBookmarks() {
		rv, _, err := r.probeWith(ctx, metav1.ListOptions{Limit: 1})
		return rv, err
	}
	before := r.run.rv
	rv, list, err := r.probeWith(ctx, metav1.ListOptions{Limit: 1, FieldSelector: selecting(n.ref.Key)})
	if isAnswer(err) && !isDenied(err) && !isBusy(err) && !isOverloaded(err) {
		// Some say that they do not select by name, others break when they are asked.
		rv, _, err := r.probeWith(ctx, metav1.ListOptions{Limit: 1})
		n.refused = err == nil
		return rv, err
	}
	if err == nil {
		r.compareNewest(list, before, rv)
	}
	return rv, err
}

// hasNoBookmarks reports whether the server is known not to send any for the resource.
// Then it has no watch cache of it, and would look for one object in all of etcd.
func (r *Reflector) hasNoBookmarks() bool {
	return !ptr.Deref(r.Status().Bookmarks, !r.origin.NoBookmarks)
}

// selecting returns the field selector of one object.
func selecting(key string) string {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key) // which a server made
	selector := fields.Set{"metadata.name": name}
	if namespace != "" {
		selector["metadata.namespace"] = namespace
	}
	return selector.AsSelector().String() // which quotes
}

// compareNewest draws the conclusions from the answer to a probe at version probed,
// when everything up to version read has been read.
func (r *Reflector) compareNewest(list runtime.Object, read, probed string) {
	n := &r.run.newest
	found, conclusive := findOnly(list, n.ref.Key)
	if !conclusive {
		// Selectors that the client puts in replace ours.
		return
	}
	switch {
	case found == ObjectRef{}, found.UID != n.ref.UID:
		n.presence = absent
	case found.UID != "":
		n.presence = present
	}
	switch {
	case found == n.ref, r.run.listReason != "":
		return
	case found == ObjectRef{}:
		n.doubt = doubt{n.ref.Key, "is not there", probed}
	case n.presence == present && precedes(found.RV, n.ref.RV), !precedes(read, found.RV):
		r.listNext(fmt.Sprintf("%s%s is at resourceVersion %s, was at %s", otherHistory, n.ref.Key, found.RV, n.ref.RV))
		return
	default:
		n.doubt = doubt{n.ref.Key, "was changed", probed}
	}
	r.checkDoubt()
}

// findOnly returns the object in a list that is to have no other, or the zero
// reference if the list is empty. It reports whether that is so.
func findOnly(list runtime.Object, key string) (ref ObjectRef, conclusive bool) {
	conclusive = true
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		ref = refOf(obj)
		conclusive = ref.Key == key
		return nil
	})
	return ref, conclusive && err == nil
}

// precedes reports whether version a is known to be before b.
func precedes(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// refOf returns the zero reference for what has no metadata.
func refOf(obj runtime.Object) ObjectRef {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ObjectRef{}
	}
	return ObjectRef{
		Key: cache.MetaObjectToName(accessor).String(),
		UID: string(accessor.GetUID()), RV: accessor.GetResourceVersion(),
	}
}

// seen notes an object that the server has, before it is queued.
func (r *Reflector) seen(obj runtime.Object, rv string) {
	n := &r.run.newest
	if n.doubt.key == "" && precedes(rv, n.ref.RV) {
		return // as most objects of a list
	}
	ref := refOf(obj)
	n.explain(ref.Key)
	if ref.Key == n.ref.Key || !precedes(rv, n.ref.RV) {
		r.setNewest(ref)
	}
}

// gone notes that the server has deleted an object, before that is queued.
func (r *Reflector) gone(obj runtime.Object) {
	n, key := &r.run.newest, refOf(obj).Key
	n.explain(key)
	if key == n.ref.Key {
		r.setNewest(ObjectRef{})
	}
}

// isGone reports whether the object was not there when it was asked for, under its UID,
// and nothing has explained that yet.
func (n *newestObject) isGone() bool { return n.doubt != (doubt{}) && n.presence != present }

// explain takes back the doubt about an object.
func (n *newestObject) explain(key string) {
	if key == n.doubt.key {
		n.doubt = doubt{}
	}
}

func (r *Reflector) setNewest(ref ObjectRef) {
	if isUnversioned(ref.RV) {
		ref = ObjectRef{}
	}
	r.run.newest.ref = ref
	r.update(func(s *Status) { s.Newest = ref })
}

// checkDoubt makes a list the next thing to do if the watch has reached the version of
// the probe, and has not told what became of the newest object.
func (r *Reflector) checkDoubt() {
	d := &r.run.newest.doubt
	if d.key != "" && !precedes(r.run.rv, d.until) {
		r.listNext(fmt.Sprintf("%s%s %s, and no event says so", otherHistory, d.key, d.what))
		*d = doubt{}
	}
}
