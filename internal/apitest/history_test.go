package apitest

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
)

func future(srv *Server, n uint64) string {
	return strconv.FormatUint(srv.storage.revision()+n, 10)
}

func wantExpired(t *testing.T, w watch.Interface) {
	t.Helper()
	e, err := next(w)
	check(t, err)
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Fatalf("got %s %v, want an Expired error", e.Type, e.Object)
	}
}

func TestOptions_Window_OlderVersionsExpire(t *testing.T) {
	srv := newServer(t, Options{Window: 3})
	fill(t, srv, 6)
	lost := srv.ResourceVersion()
	oldest := configMap("c6")
	check(t, srv.Create(oldest, configMap("c7"), configMap("c8"), configMap("c9")))
	wantExpired(t, watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: lost}))
	w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: oldest.ResourceVersion})
	wantEvent(t, w, watch.Added, "c7")
	_, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{ResourceVersion: lost, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("exact list: %v, want Expired", err)
	}
}

func TestServer_Compact(t *testing.T) {
	srv := newServer(t, Options{})
	fill(t, srv, 2)
	old := srv.ResourceVersion()
	page, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{Limit: 1})
	check(t, err)
	running := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: old})
	check(t, srv.Create(configMap("d")))
	wantEvent(t, running, watch.Added, "d")
	check(t, srv.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}))
	srv.Compact()

	wantExpired(t, watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: old}))
	_, err = listConfigMaps(t.Context(), t, srv, metav1.ListOptions{Limit: 1, Continue: page.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("next page: %v, want Expired", err)
	}
	token := err.(apierrors.APIStatus).Status().Continue
	rest, err := listConfigMaps(t.Context(), t, srv, metav1.ListOptions{Continue: token})
	check(t, err)
	if len(rest.Items) != 2 || rest.Items[1].Name != "d" {
		t.Errorf("the token in the error continues with %d objects, want c1 and d", len(rest.Items))
	}
	check(t, srv.Create(configMap("e")))
	wantEvent(t, running, watch.Added, "e")
}

func TestServer_EndWatches(t *testing.T) {
	srv := newServer(t, Options{})
	w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"})
	srv.EndWatches()
	wantEnd(t, w)
	w = watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"})
	fill(t, srv, 1)
	wantEvent(t, w, watch.Added, "c0")
}

func TestServer_FailWatches(t *testing.T) {
	srv := newServer(t, Options{})
	w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"})
	srv.FailWatches(http.StatusGone)
	wantExpired(t, w)
	wantEnd(t, w)
	w = watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"})
	srv.EndWatches()
	wantEnd(t, w)
}

func TestServer_Restore_GivesVersionsOutAgain(t *testing.T) {
	srv := newServer(t, Options{})
	fill(t, srv, 2)
	snap := srv.Snapshot()
	lost := configMap("lost")
	check(t, srv.Create(lost))
	check(t, srv.Delete(configMap("c0")))
	w := watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: srv.ResourceVersion()})
	srv.Restore(snap)
	wantEnd(t, w)

	objs, rv, err := srv.List(configMapsGVR, "")
	check(t, err)
	if len(objs) != 2 || rv != snap.ResourceVersion() {
		t.Errorf("%d objects at %s, want 2 at %s", len(objs), rv, snap.ResourceVersion())
	}
	other := configMap("other")
	check(t, srv.Create(other))
	if other.ResourceVersion != lost.ResourceVersion {
		t.Errorf("the next version is %s, want %s again", other.ResourceVersion, lost.ResourceVersion)
	}
	wantExpired(t, watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: "1"}))
	w = watchConfigMaps(t, srv, metav1.ListOptions{ResourceVersion: snap.ResourceVersion()})
	wantEvent(t, w, watch.Added, "other")
	srv.Restore(snap)
	check(t, srv.Create(configMap("again")))
	if objs, _, err = srv.List(configMapsGVR, ""); err != nil || len(objs) != 3 {
		t.Errorf("restoring again: %d objects, %v, want 3", len(objs), err)
	}
}

// TestStorage_RandomWrites_HistoryIsConsistent compares, after random writes,
// what lists at every version and watches from every version say with the
// states that the table really had.
func TestStorage_RandomWrites_HistoryIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		srv := &Server{opts: Options{}.withDefaults(), storage: newStorage(rapid.IntRange(1, 40).Draw(t, "window"))}
		table, _ := srv.storage.table(configMapsGVR)
		states := map[uint64]map[string]uint64{1: {}}
		for i := range rapid.IntRange(0, 40).Draw(t, "writes") {
			obj := configMap(string(rune('a' + rapid.IntRange(0, 5).Draw(t, "name"))))
			obj.Data = map[string]string{"i": strconv.Itoa(i)}
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				_ = srv.Delete(obj)
			case 1:
				_ = srv.Update(obj)
			default:
				_ = srv.Create(obj)
			}
			rows, rv := srv.storage.latest(table)
			states[rv] = versions(rows)
		}
		current := srv.storage.revision()
		for rv, want := range states {
			rows, err := srv.storage.at(table, rv)
			if rv < table.log.oldest {
				if !apierrors.IsResourceExpired(err) {
					t.Fatalf("list at %d, before %d: %v", rv, table.log.oldest, err)
				}
				continue
			}
			if err != nil || fmt.Sprint(versions(rows)) != fmt.Sprint(want) {
				t.Fatalf("list at %d: %v, %v, want %v", rv, versions(rows), err, want)
			}
			if got := replay(t, srv.storage, table, want, rv); fmt.Sprint(got) != fmt.Sprint(states[current]) {
				t.Fatalf("watch from %d leads to %v, want %v", rv, got, states[current])
			}
		}
	})
}

func versions(rows []*record) map[string]uint64 {
	m := map[string]uint64{}
	for _, row := range rows {
		m[row.key] = row.rv
	}
	return m
}

// replay applies the changes above rv to a state.
func replay(t *rapid.T, s *storage, table *table, from map[string]uint64, rv uint64) map[string]uint64 {
	state := map[string]uint64{}
	for k, v := range from {
		state[k] = v
	}
	win, ok := s.since(table, 0, rv)
	if !ok {
		t.Fatalf("changes above %d are lost", rv)
	}
	for _, c := range win.changes {
		if c.cur != nil {
			state[c.cur.key] = c.cur.rv
		} else {
			delete(state, c.prev.key)
		}
	}
	return state
}
