package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// blockSize is the page size of the database.
const blockSize = 4096

// changedBlocks counts the blocks of a file that are not what they were. bbolt
// never changes a page in place, so that a record that is written again changes a
// block even if its bytes stay the same.
func changedBlocks(before, after []byte) int {
	changed := 0
	for offset := 0; offset < len(after); offset += blockSize {
		end := min(offset+blockSize, len(after))
		if end > len(before) || !bytes.Equal(before[offset:end], after[offset:end]) {
			changed++
		}
	}
	return changed
}

// largeSize is how many objects newLargeSubject creates, and about how many
// blocks they take.
const largeSize = 300

func newLargeSubject(t *testing.T) *subject {
	t.Helper()
	s := newSubject(t, configMaps)
	s.createSized(3000, "", names("object", largeSize)...)
	return s
}

// restartExpired stores the objects of a large subject, changes some of them, lets
// forget make the server forget the stored version, and tests that the next
// process lists once and writes the differences only.
func restartExpired(t *testing.T, s *subject, forget func(storedRV string)) {
	t.Helper()
	c := s.start()
	stored := c.waitSynced().Informers["configmaps"].Status.RV
	c.terminate()
	before := s.readFile()

	s.createSized(3000, "", "new")
	s.update("changed", "object-000")
	s.delete("object-001", "object-002")
	s.create("", "object-002")
	forget(stored)

	c = s.start()
	synced := c.waitSynced()
	c.wantCurrent(synced)
	c.wantLists(1)
	if reason := synced.Informers["configmaps"].Status.ListReason; !strings.Contains(reason, "forgotten") {
		t.Errorf("listed because %q, want because the server has forgotten", reason)
	}
	c.wantDeparted("object-001", "object-002")
	c.wantDelivered(counts{Adds: largeSize + 2, InitialAdds: largeSize + 2, Deletes: 2})
	c.terminate()
	s.wantLittleWritten(before)
}

func (s *subject) readFile() []byte {
	s.t.Helper()
	content, err := os.ReadFile(s.config.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	return content
}

// wantLittleWritten fails the test if more of the file has changed than a few
// objects take, and what leads to them.
func (s *subject) wantLittleWritten(before []byte) {
	s.t.Helper()
	changed := changedBlocks(before, s.readFile())
	s.t.Logf("%d of %d blocks changed", changed, len(before)/blockSize)
	if changed > largeSize/5 {
		s.t.Errorf("%d blocks of the file changed: more was written than what differs", changed)
	}
}

func TestExpired_APIServerRestarted_ListsOnceAndWritesTheDifferences(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		restartExpired(t, newLargeSubject(t).residing(r), func(string) { forgetHistory(t) })
	})
}

// Without a watch cache it is etcd that forgets, when it is compacted.
func TestExpired_EtcdCompacted_ListsOnceAndWritesTheDifferences(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newLargeSubject(t).residing(r)
		s.connectTo(addAPIServer(t, "--watch-cache-sizes=configmaps#0"))
		restartExpired(t, s, func(string) { compact(t, s) })
	})
}

// A watch cache keeps 100 events at least and doubles up to 102,400 whenever it
// is full of events of the last 75 seconds. No flag makes it smaller, so that it
// takes that long to forget.
func TestExpired_WatchCacheOverflown_ListsOnceAndWritesTheDifferences(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 75 seconds")
	}
	t.Parallel()
	s := newLargeSubject(t)
	// Its cache begins after the events that created the objects.
	s.connectTo(addAPIServer(t))
	restartExpired(t, s, func(stored string) {
		for n := range 80 {
			s.update(strconv.Itoa(n), "object-003")
		}
		fresh := time.NewTimer(76 * time.Second)
		defer fresh.Stop()
		select {
		case <-fresh.C:
		case <-t.Context().Done():
		}
		for n := 0; !isForgotten(t, s, stored); n++ {
			if n == 100 {
				t.Fatal("the watch cache still knows the stored version")
			}
			s.update(strconv.Itoa(n), "object-003")
		}
	})
}

// isForgotten reports whether the API server of a subject refuses to watch from a
// version.
func isForgotten(t *testing.T, s *subject, rv string) bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.apis[0].Config())
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.CoreV1().ConfigMaps(s.namespace).Watch(patiently(t), metav1.ListOptions{ResourceVersion: rv})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	event := <-watch.ResultChan()
	status, failed := event.Object.(*metav1.Status)
	return failed && status.Reason == metav1.StatusReasonExpired
}

func addAPIServer(t *testing.T, args ...string) *controlplane.APIServer {
	t.Helper()
	api, err := plane.AddAPIServer(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	return api
}

// compact makes etcd forget all versions but the current one.
func compact(t *testing.T, s *subject) {
	t.Helper()
	list, err := s.writer.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(map[string]any{"revision": list.ResourceVersion, "physical": true})
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/v3/kv/compaction", plane.Etcd.Port())
	// No connection stays: nobody would close it.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post(url, "application/json", bytes.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("compacting etcd: %s", response.Status)
	}
}
