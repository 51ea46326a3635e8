package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// blockSize is the page size of the database.
const blockSize = 4096

// changedBlocks counts the blocks of a file that are not what they were. bbolt
// never changes a page in place, so that a record that is written again changes a
// block even if its bytes stay the same.
func changedBlocks(t *testing.T, before []byte, path string) int {
	t.Helper()
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for offset := 0; offset < len(after); offset += blockSize {
		end := min(offset+blockSize, len(after))
		if end > len(before) || !bytes.Equal(before[offset:end], after[offset:end]) {
			changed++
		}
	}
	return changed
}

// restartExpired leaves 300 objects of 3 KB in the file of a subject, changes
// some of them, lets forget make the server forget the stored version, and tests
// that the next process lists once and writes the differences only.
func restartExpired(t *testing.T, s *subject, forget func()) {
	t.Helper()
	const objects = 300
	s.createSized(3000, "", names("object", objects)...)
	c := s.start()
	c.waitSynced()
	c.terminate()
	before, err := os.ReadFile(s.config.Path)
	if err != nil {
		t.Fatal(err)
	}

	s.createSized(3000, "", "new")
	s.update("changed", "object-000")
	s.delete("object-001", "object-002")
	s.create("", "object-002")
	forget()

	c = s.start()
	synced := c.waitSynced()
	c.wantCurrent(synced)
	c.wantLists(1)
	if reason := synced.Informers["configmaps"].Status.ListReason; !strings.Contains(reason, "forgotten") {
		t.Errorf("listed because %q, want because the server has forgotten", reason)
	}
	c.wantDeparted("object-001", "object-002")
	c.wantDelivered(counts{Adds: objects + 2, InitialAdds: objects + 2, Deletes: 2})
	c.terminate()
	// Four objects, two departed, and what leads to them. Any rewrite of all
	// would be 300 blocks.
	changed := changedBlocks(t, before, s.config.Path)
	t.Logf("%d of %d blocks changed", changed, len(before)/blockSize)
	if changed > objects/5 {
		t.Errorf("%d blocks of the file changed: more than the differences were written", changed)
	}
}

func TestExpired_APIServerRestarted_ListsOnceAndWritesTheDifferences(t *testing.T) {
	s := newSubject(t, configMaps)
	restartExpired(t, s, func() { forgetHistory(t) })
}

// Without a watch cache it is etcd that forgets, when it is compacted.
func TestExpired_EtcdCompacted_ListsOnceAndWritesTheDifferences(t *testing.T) {
	uncached, err := plane.AddAPIServer(t.Context(), "--watch-cache-sizes=configmaps#0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(uncached.Stop)
	s := newSubject(t, configMaps)
	s.connectTo(uncached)
	restartExpired(t, s, func() { compact(t, s) })
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
