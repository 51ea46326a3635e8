package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// watchedInformers is how many informers a manager has: five kinds in two
// namespaces, and nodes.
const watchedInformers = 5*2 + 1

// populate creates objects of every watched kind, watched and not.
func (m *managers) populate() {
	m.t.Helper()
	for _, namespace := range []string{m.config.Web, m.config.DB} {
		for _, name := range names("object", 10) {
			m.create(configMaps, namespace, name, "watched=yes")
			m.create(leases, namespace, name, "")
			m.createPod(namespace, name, "node", "watched=yes")
		}
		m.create(configMaps, namespace, "hidden", "watched=no")
		m.createPod(namespace, "hidden", "other", "watched=no")
		// Each is selected in one of the namespaces.
		m.createPod(namespace, "by-field", "node", "watched=no")
		m.createPod(namespace, "by-label", "other", "watched=yes")
	}
	for _, name := range names(m.config.Web, 3) {
		m.create(nodes, "", name, "owner="+m.config.Web)
	}
	m.create(nodes, "", m.config.DB, "owner="+m.config.DB)
}

func (m *managers) create(k kind, namespace, name, labels string) {
	m.t.Helper()
	if err := k.create(m.t.Context(), m.writer, objectMeta(namespace, name, 100, labels)); err != nil {
		m.t.Fatal(err)
	}
}

// createPod creates a pod on a node that does not exist: nobody runs it.
func (m *managers) createPod(namespace, name, node, labels string) {
	m.t.Helper()
	pod := &corev1.Pod{ObjectMeta: objectMeta(namespace, name, 100, labels), Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "container", Image: "image"}},
	}}
	if _, err := m.writer.CoreV1().Pods(namespace).Create(m.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *managers) patch(k kind, namespace, name string, patch []byte) {
	m.t.Helper()
	if err := k.patch(m.t.Context(), m.writer, namespace, name, patch); err != nil {
		m.t.Fatal(err)
	}
}

func (m *managers) remove(k kind, namespace, name string) {
	m.t.Helper()
	if err := k.remove(m.t.Context(), m.writer, namespace, name); err != nil {
		m.t.Fatal(err)
	}
}

// removePod does not wait for a kubelet.
func (m *managers) removePod(namespace, name string) {
	m.t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := m.writer.CoreV1().Pods(namespace).Delete(m.t.Context(), name, now); err != nil {
		m.t.Fatal(err)
	}
}

// changeEverything creates, changes and deletes objects of every watch, moves some
// in and out of selections, and returns what is gone of each.
func (m *managers) changeEverything() (gone map[string][]string) {
	m.t.Helper()
	web, db := m.config.Web, m.config.DB
	for _, namespace := range []string{web, db} {
		m.patch(configMaps, namespace, "object-000", annotate("changed"))
		m.patch(leases, namespace, "object-000", annotate("changed"))
		m.patch(pods, namespace, "object-000", annotate("changed"))
		m.create(configMaps, namespace, "new", "watched=yes")
		m.createPod(namespace, "new", "node", "watched=yes")
		m.patch(configMaps, namespace, "hidden", []byte(`{"metadata":{"labels":{"watched":"yes"}}}`))
	}
	m.patch(nodes, "", m.config.Web+"-000", annotate("changed"))
	m.remove(configMaps, web, "object-001")
	m.patch(configMaps, db, "object-002", []byte(`{"metadata":{"labels":{"watched":"no"}}}`))
	m.remove(leases, web, "object-003")
	m.removePod(web, "by-field")
	m.removePod(db, "by-label")
	m.remove(nodes, "", m.config.Web+"-001")
	departed := []string{web + "/object-001", db + "/object-002"}
	return map[string][]string{
		"configmaps": departed, "configmaps-unstructured": departed, "configmaps-metadata": departed,
		"leases": {web + "/object-003"},
		"pods":   {web + "/by-field", db + "/by-label"},
		"nodes":  {m.config.Web + "-001"},
	}
}

// TestManagers_Killed_EachInformerResumesWithItsOwn is a program with controller-
// runtime that crashes and comes back.
func TestManagers_Killed_EachInformerResumesWithItsOwn(t *testing.T) {
	m := newManagers(t)
	m.populate()
	r := m.start()
	s := r.waitCurrent(nil)
	if len(s.Informers) != watchedInformers {
		t.Errorf("%d informers, want %d", len(s.Informers), watchedInformers)
	}
	if lists := r.lists(); len(lists) != watchedInformers {
		t.Errorf("%d lists at the first start, want %d: %q", len(lists), watchedInformers, lists)
	}
	r.waitPersisted()
	r.kill()

	gone := m.changeEverything()
	// The newest write of a collection is one that a selector may hide.
	newSubject(t, leases).beat()
	r = m.start()
	r.waitCurrent(gone)
	r.wantResumed()
	r.kill()

	// Nobody knows whether what the reconcilers did was finished.
	r = m.start()
	r.waitCurrent(gone)
	r.wantResumed()
	m.patch(configMaps, m.config.Web, "object-004", annotate("changed"))
	r.waitCurrent(gone)
	r.stop()
}

// wantResumed fails the test unless no informer of the process has listed.
func (r *managersRun) wantResumed() {
	r.m.t.Helper()
	if lists := r.lists(); len(lists) != 0 {
		r.m.t.Errorf("%s: collections were read: %q", r.agent, lists)
	}
	for _, s := range r.look().Informers {
		if !s.Persistent || s.ListReason != "" || s.DurabilityErr != "" {
			r.m.t.Errorf("%s: status %+v", r.agent, s)
		}
	}
}

// TestManagers_OnDisk_IndicesAddedWhileTheyRun has all objects in the file only, in
// all forms, and indices that are added when the caches are in use, as by a reconciler
// that is started later: first to objects that have no such index, and in the next
// process to ones that are indexed in the file.
func TestManagers_OnDisk_IndicesAddedWhileTheyRun(t *testing.T) {
	m := newManagers(t)
	m.config.Residency = informer.Disk
	m.populate()
	r := m.start()
	r.waitCurrent(nil)
	r.index()
	r.waitCurrent(nil)
	gone := m.changeEverything()
	s := r.waitCurrent(gone)
	if len(s.Informers) != watchedInformers {
		t.Errorf("%d informers, want %d", len(s.Informers), watchedInformers)
	}
	r.wantOnDisk()
	r.waitPersisted()
	r.kill()

	m.config.AllIndexed = false
	m.patch(configMaps, m.config.Web, "object-004", annotate("changed"))
	newSubject(t, leases).beat()
	r = m.start()
	r.waitCurrent(gone)
	r.index()
	r.waitCurrent(gone)
	r.wantResumed()
	r.wantOnDisk()
	r.stop()
}

// wantOnDisk fails the test unless the informers have their objects in the file, and
// could read all of them.
func (r *managersRun) wantOnDisk() {
	r.m.t.Helper()
	for _, s := range r.look().Informers {
		if s.Residency != informer.Disk || s.ReadErr != "" || s.ReadErrors > 0 {
			r.m.t.Errorf("%s: status %+v, want objects on disk, and no failed read", r.agent, s)
		}
	}
}

// TestManagers_TwoOnOneFile has informers of the same identities twice in a process.
// The second manager's work in memory.
func TestManagers_TwoOnOneFile(t *testing.T) {
	m := newManagers(t)
	m.config.Managers = 2
	m.populate()
	r := m.start()
	s := r.waitCurrent(nil)
	inUse := 0
	for _, status := range s.Informers {
		if !status.Persistent && strings.Contains(status.DurabilityErr, store.ErrInUse.Error()) {
			inUse++
		}
	}
	if inUse != watchedInformers || len(s.Informers) != 2*watchedInformers {
		t.Errorf("%d of %d informers are refused, want %d of %d", inUse, len(s.Informers), watchedInformers, 2*watchedInformers)
	}
	gone := m.changeEverything()
	r.waitCurrent(gone)
	log := r.stop()
	if n := strings.Count(log, "going on from memory"); n != watchedInformers {
		t.Errorf("the log tells of %d informers that are refused, want %d", n, watchedInformers)
	}
	if !strings.Contains(log, "e2e.(*managersProcess).add (managermain_test.go:") {
		t.Error("the log does not say whose informers they are")
	}

	// The first manager's data is as if there had been no second. What it was told is
	// gone is recent enough to be told again.
	m.config.Managers = 1
	newSubject(t, leases).beat()
	r = m.start()
	r.waitCurrent(gone)
	r.wantResumed()
}

func TestManagers_NotIdentified(t *testing.T) {
	m := newManagers(t)
	m.config.Unidentified = true
	m.populate()
	r := m.start()
	s := r.waitCurrent(nil)
	for _, status := range s.Informers {
		if status.Persistent || !strings.Contains(status.DurabilityErr, factory.ErrNotIdentified.Error()) {
			t.Errorf("status %+v", status)
		}
	}
	gone := m.changeEverything()
	r.waitCurrent(gone)
	if log := r.stop(); !strings.Contains(log, "give manager.New factory.Identify(config)") {
		t.Error("the log does not say what to do")
	}
}

// TestManagers_Offline starts while the server is out of reach: kinds, objects and
// indices come from the file, and reconcilers run.
func TestManagers_Offline(t *testing.T) {
	m := newManagers(t)
	m.populate()
	r := m.start()
	r.waitCurrent(nil)
	r.waitPersisted()
	r.kill()

	m.config.Host = "https://127.0.0.1:1"
	m.config.Stale = 100 * time.Millisecond
	r = m.start()
	s := r.waitCurrent(nil)
	if len(s.Informers) != watchedInformers {
		t.Errorf("%d informers, want %d", len(s.Informers), watchedInformers)
	}
	for _, status := range s.Informers {
		if status.Confirmed || !status.Persistent || status.Err == "" {
			t.Errorf("status %+v, want persistent, not confirmed, and why the server is out of reach", status)
		}
	}
	r.kill()
}
