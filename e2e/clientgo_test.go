package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The reference: what client-go's own informer does on this server. It shows
// that the harness counts and compares rightly, and that a restart of the API
// server costs client-go a list, even while the informer keeps running.
func TestClientGoInformer_ListsAtStartAndAfterTheServerForgot(t *testing.T) {
	writer := clientFor(t, "writer")
	namespace := newNamespace(t, writer)
	for i := range 50 {
		createConfigMap(t, writer, namespace, fmt.Sprintf("object-%02d", i))
	}
	informer := coreinformers.NewConfigMapInformer(clientFor(t, t.Name()), namespace, 0, cache.Indexers{})
	handled := newView()
	if _, err := informer.AddEventHandler(reportTo(handled.observe, "configmaps")); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		informer.Run(stop)
	}()
	defer func() {
		close(stop)
		<-stopped
	}()

	if err := handled.waitFor(patiently(t), freshList(t, writer, namespace)); err != nil {
		t.Fatal(err)
	}
	if n := collectionReads(t, t.Name(), "configmaps"); n != 1 {
		t.Errorf("read the collection %d times at start, want once", n)
	}

	createConfigMap(t, writer, namespace, "new")
	touchConfigMap(t, writer, namespace, "object-00", "changed")
	deleteConfigMap(t, writer, namespace, "object-01")
	if err := handled.waitFor(patiently(t), freshList(t, writer, namespace)); err != nil {
		t.Fatal(err)
	}

	forgetHistory(t)
	deleteConfigMap(t, writer, namespace, "object-02")
	if err := handled.waitFor(patiently(t), freshList(t, writer, namespace)); err != nil {
		t.Fatal(err)
	}
	if n := collectionReads(t, t.Name(), "configmaps"); n != 2 {
		t.Errorf("read the collection %d times after the server forgot, want twice", n)
	}
	got, problems := handled.delivered()
	// How many of the second list's objects have been delivered as unchanged
	// updates by now is a matter of luck.
	if got.Updates < 1 {
		t.Error("delivered no update, want that of object-00")
	}
	got.Updates = 0
	if want := (counts{Adds: 51, InitialAdds: 50, Deletes: 2}); got != want {
		t.Errorf("delivered %+v, want %+v", got, want)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// A version that was current before forgetHistory is expired after it, which is
// what tests of a relist rely on.
func TestForgetHistory_ExpiresTheCurrentVersion(t *testing.T) {
	client := clientFor(t, t.Name())
	namespace := newNamespace(t, client)
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forgetHistory(t)
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(patiently(t), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	event := <-watch.ResultChan()
	status, ok := event.Object.(*metav1.Status)
	if !ok || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("got %+v, want an error event with reason Expired", event)
	}
}
