package crashtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// deadly is the object whose delete ends the process of dieInDelete.
const deadly = "a/deadly"

// dieInDelete is a controller that is killed by one delete, as by a bug in its
// handler. It says which deletes its handler is given. The argument is the URL of
// the server and the path of the file.
func dieInDelete(argument string) error {
	url, path, _ := strings.Cut(argument, " ")
	clientset, err := kubernetes.NewForConfig(&rest.Config{
		Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	})
	if err != nil {
		return err
	}
	db, err := bolt.Open(path, bolt.Options{}) //hygiene:allow bolt.Open: in another process; the test checks the file
	if err != nil {
		return err
	}
	f, err := factory.New(clientset, db, factory.WithListBelow(-1))
	if err != nil {
		return err
	}
	registration, err := f.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		key := versionOfAny(obj).key
		(&reporter{w: os.Stdout}).line(wordDelete, key)
		if key == deadly {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
	}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	<-registration.HasSyncedChecker().Done()
	stop()
	f.Shutdown()
	return db.Close()
}

// TestDeparted_DeleteThatEndsTheProcess_IsGivenUp has a delete kill the process
// again and again: after three times it is left out, and the one behind it, which
// was never delivered, is not.
func TestDeparted_DeleteThatEndsTheProcess_IsGivenUp(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"a/before", deadly, "a/later", "a/stays"} {
		w.put(configMaps, key, "gold")
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	db := bolttest.Open(t, path, unhurried)
	startController(t, w, db, newRecorder()).stop()
	closeDB(t, db)
	for _, key := range []string{"a/before", deadly, "a/later"} {
		w.remove(configMaps, key)
	}

	for life := range 4 {
		deletes, log, err := lifeOfDeletes(w.server.URL(), path)
		given := slices.Contains(deletes, deadly)
		if died := err != nil; given != (life < 3) || died != given {
			t.Fatalf("life %d: was given %q and ended with %v\n%s", life, deletes, err, log)
		}
		if slices.Contains(deletes, "a/later") == given {
			t.Errorf("life %d: was given %q", life, deletes)
		}
		if givenUp := strings.Contains(log, "giving up"); givenUp == given {
			t.Errorf("life %d: gave up: %v\n%s", life, givenUp, log)
		}
	}
	if deletes, log, err := lifeOfDeletes(w.server.URL(), path); !slices.Equal(deletes, []string{"a/later"}) || err != nil {
		t.Errorf("afterwards: was given %q and ended with %v\n%s", deletes, err, log)
	}
	bolttest.CheckFile(t, path)
}

// lifeOfDeletes runs dieInDelete until it ends, and returns the deletes that its
// handler was given and what it has logged.
func lifeOfDeletes(url, path string) (deletes []string, log string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := childCommand("die-in-delete", url+" "+path)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	tooLong := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer tooLong.Stop()
	err = cmd.Wait()
	for line := range strings.Lines(stdout.String()) {
		deletes = append(deletes, strings.TrimSuffix(strings.TrimPrefix(line, wordDelete+"\t"), "\n"))
	}
	return deletes, stderr.String(), err
}
