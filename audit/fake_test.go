package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is the metadata of an object with a version.
func object(key, uid string, rv int, label string) *metav1.PartialObjectMetadata {
	namespace, name, _ := strings.Cut(key, "/")
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: strconv.Itoa(rv), Labels: map[string]string{"l": label},
	}}
}

// state is what one side has.
type state map[string]*metav1.PartialObjectMetadata

// event is a change of the server; a nil object is a delete.
type event struct {
	rv     int
	key    string
	object *metav1.PartialObjectMetadata
}

// world is a server and a cache that follows it. Before each of its answers, it calls
// step, which may let anything happen.
type world struct {
	step func()

	server state
	rv     int
	// past are the states that tokens stand for.
	past   map[int]state
	events []event

	cache state
	// applied counts the events that the cache has applied, version is theirs.
	applied, version int
	lists            uint64
	deleted          map[string]bool

	// pageLimit is how many objects a page has, expired what a page with a token is
	// answered with, if not nil.
	pageLimit int
	expired   func() error
	// keys, unless liveKeys, are those that the cache had at the first Range.
	keys     []string
	liveKeys bool
	// behind makes Reached fail.
	behind bool
	pages  int
}

func newWorld() *world {
	return &world{
		step: func() {}, server: state{}, past: map[int]state{}, cache: state{}, deleted: map[string]bool{}, rv: 1, version: 1, pageLimit: 3,
	}
}

// put creates or updates an object of the server, remove deletes one.
func (w *world) put(key, label string) {
	uid := fmt.Sprint("uid-", w.rv)
	if old := w.server[key]; old != nil {
		uid = string(old.UID)
	}
	w.rv++
	w.server[key] = object(key, uid, w.rv, label)
	w.events = append(w.events, event{w.rv, key, w.server[key]})
}

func (w *world) remove(key string) {
	if w.server[key] == nil {
		return
	}
	w.rv++
	delete(w.server, key)
	w.events = append(w.events, event{w.rv, key, nil})
}

// follow applies up to n events to the cache.
func (w *world) follow(n int) {
	for ; n > 0 && w.applied < len(w.events); n-- {
		e := w.events[w.applied]
		if w.applied++; e.object == nil {
			w.deleted[e.key] = true
			delete(w.cache, e.key)
		} else {
			w.cache[e.key] = e.object
		}
		w.version = e.rv
	}
}

// list has the cache filled by a list.
func (w *world) list() {
	for key := range w.cache {
		if w.server[key] == nil {
			w.deleted[key] = true
		}
	}
	w.cache, w.applied, w.version = maps.Clone(w.server), len(w.events), w.rv
	w.lists++
}

// List implements Lister. A token is a version and a key; version 0 is the current one.
func (w *world) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	w.step()
	w.pages++
	rv, from := w.rv, ""
	if o.Continue != "" {
		if w.expired != nil {
			if err := w.expired(); err != nil {
				return nil, err
			}
		}
		token, start, _ := strings.Cut(o.Continue, " ")
		rv, from = must(strconv.Atoi(token)), start
	}
	if rv == 0 {
		rv = w.rv
	}
	if rv == w.rv {
		w.past[rv] = maps.Clone(w.server)
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(rv)}}
	for _, key := range slices.Sorted(maps.Keys(w.past[rv])) {
		if key <= from {
			continue
		}
		if len(list.Items) == w.pageLimit {
			last := list.Items[len(list.Items)-1]
			list.Continue = fmt.Sprintf("%d %s/%s", rv, last.Namespace, last.Name)
			break
		}
		list.Items = append(list.Items, *w.past[rv][key])
	}
	return list, nil
}

// expiredToken is the answer to a token that has expired, with another one, if offer.
func expiredToken(offer string) error {
	err := apierrors.NewResourceExpired("the token has expired")
	err.ErrStatus.Continue = offer
	return err
}

// Version implements Local.
func (w *world) Version() string { return strconv.Itoa(w.version) }

// Settled implements Local.
func (w *world) Settled(context.Context) (uint64, error) {
	w.step()
	return w.lists, nil
}

// Reached implements Local.
func (w *world) Reached(_ context.Context, rv string) error {
	w.step()
	for want := must(strconv.Atoi(rv)); w.version < want; {
		if w.behind {
			return ErrBehind
		}
		if w.applied == len(w.events) {
			w.version = w.rv // a bookmark
		}
		w.follow(1)
	}
	return nil
}

// Range implements Local.
func (w *world) Range(after, upTo string, fn func(string, any) bool) error {
	if w.keys == nil || w.liveKeys {
		w.keys = slices.Sorted(maps.Keys(w.cache))
	}
	for _, key := range w.keys {
		w.step()
		if obj := w.cache[key]; key > after && (upTo == "" || key <= upTo) && obj != nil && !fn(key, obj) {
			break
		}
	}
	return nil
}

// Get implements Local.
func (w *world) Get(key string) (any, bool, error) {
	w.step()
	obj := w.cache[key]
	return obj, obj != nil, nil
}

// Deleted implements Local.
func (w *world) Deleted(key string) (bool, error) {
	w.step()
	return w.deleted[key], nil
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// run audits the world.
func (w *world) run(t *testing.T, change ...func(*Options)) Report {
	o := Options{Lister: w, Local: w, Rate: 1000}
	for _, c := range change {
		c(&o)
	}
	return Run(t.Context(), o)
}

// sorted returns findings by key.
func sorted(found []finding) []finding {
	return slices.SortedFunc(slices.Values(found), func(a, b finding) int { return cmp.Compare(a.key, b.key) })
}
