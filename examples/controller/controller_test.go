package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a fake one, with a controller that can be started and stopped.
type cluster struct {
	*testing.T
	kubernetes.Interface
	options
	log ktesting.Buffer
}

func newCluster(t *testing.T, cacheFile string) *cluster {
	return &cluster{T: t, Interface: fake.NewClientset(), options: options{
		directory: t.TempDir(), cacheFile: cacheFile, workers: 2,
	}}
}

// start returns what stops the controller and waits for its end.
func (c *cluster) start() (stop func()) {
	logger := ktesting.NewLogger(c, ktesting.NewConfig(ktesting.BufferLogs(true)))
	c.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(c.Context(), logger))
	done := make(chan error)
	go func() { done <- c.runWith(ctx, c.Interface) }()
	return func() {
		c.Helper()
		cancel()
		if err := <-done; err != nil {
			c.Error(err)
		}
	}
}

func (c *cluster) create(name, value string) {
	c.Helper()
	object := configMap(name, value)
	if _, err := c.CoreV1().ConfigMaps("default").Create(c.Context(), object, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) update(name, value string) {
	c.Helper()
	object := configMap(name, value)
	if _, err := c.CoreV1().ConfigMaps("default").Update(c.Context(), object, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) delete(name string) {
	c.Helper()
	if err := c.CoreV1().ConfigMaps("default").Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

// waitFor waits until the directory has these files and no others.
func (c *cluster) waitFor(want map[string]string) {
	c.Helper()
	var diff string
	err := wait.PollUntilContextTimeout(c.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		diff = cmp.Diff(want, c.files())
		return diff == "", nil
	})
	if err != nil {
		c.Fatalf("files (-want +got):\n%s", diff)
	}
}

// waitForLog waits until the log of the running controller has a text.
func (c *cluster) waitForLog(text string) {
	c.Helper()
	err := wait.PollUntilContextTimeout(c.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return strings.Contains(c.log.String(), text), nil
	})
	if err != nil {
		c.Fatalf("not in the log: %q", text)
	}
}

// files returns the contents of all files by their paths.
func (c *cluster) files() map[string]string {
	c.Helper()
	files := map[string]string{}
	root := os.DirFS(c.directory)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		c.Log(err) // A file that has just been renamed or removed.
	}
	return files
}

// The same code with client-go's informers and with ours.
func TestController_KeepsFilesEqualToConfigMaps(t *testing.T) {
	for name, cacheFile := range map[string]string{"client-go": "", "warmcache": filepath.Join(t.TempDir(), "cache.db")} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, cacheFile)
			c.create("a", "1")
			c.create("b", "1")
			stop := c.start()
			defer stop()
			c.waitFor(map[string]string{"default/a.json": `{"value":"1"}`, "default/b.json": `{"value":"1"}`})
			c.update("a", "2")
			c.delete("b")
			c.create("c", "1")
			c.waitFor(map[string]string{"default/a.json": `{"value":"2"}`, "default/c.json": `{"value":"1"}`})
		})
	}
}

func TestController_RemovesWhatWasDeletedWhileItWasAway(t *testing.T) {
	c := newCluster(t, filepath.Join(t.TempDir(), "cache.db"))
	c.create("a", "1")
	c.create("b", "1")
	c.create("c", "1")
	stop := c.start()
	c.waitFor(map[string]string{"default/a.json": `{"value":"1"}`, "default/b.json": `{"value":"1"}`, "default/c.json": `{"value":"1"}`})
	stop()
	c.delete("a")
	c.delete("b")
	c.create("b", "2")
	stop = c.start()
	c.waitFor(map[string]string{"default/b.json": `{"value":"2"}`, "default/c.json": `{"value":"1"}`})
	stop()
	bolttest.CheckFile(t, c.cacheFile)
}

// A worker that has not got to a delete when the controller is asked to stop must
// not be the last to have heard of it.
func TestController_DeleteThatIsNotReconciledIsDeliveredAgain(t *testing.T) {
	c := newCluster(t, filepath.Join(t.TempDir(), "cache.db"))
	c.create("a", "1")
	stop := c.start()
	c.waitFor(map[string]string{"default/a.json": `{"value":"1"}`})
	// A directory that is not empty, in place of the file, cannot be removed.
	file := filepath.Join(c.directory, "default", "a.json")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(file, "obstacle"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.delete("a")
	c.waitForLog("Reconciling failed")
	stop()

	if err := os.Remove(filepath.Join(file, "obstacle")); err != nil {
		t.Fatal(err)
	}
	stop = c.start()
	defer stop()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		_, err := os.Stat(file)
		return os.IsNotExist(err), nil
	})
	if err != nil {
		t.Errorf("the delete was not delivered again: %v", err)
	}
}
