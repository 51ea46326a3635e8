package controlplane

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// createConfigMap creates a namespace with one object and returns its name.
func createConfigMap(t *testing.T, c *kubernetes.Clientset) (namespace string) {
	t.Helper()
	ns, err := c.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().ConfigMaps(ns.Name).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func getConfigMap(ctx context.Context, c *kubernetes.Clientset, namespace string) error {
	_, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, "one", metav1.GetOptions{})
	return err
}

func TestAPIServer_AuditEvents_HaveEveryRequestThatWasAnswered(t *testing.T) {
	api := shared(t).API
	config := api.Config()
	config.UserAgent = t.Name()
	c := client(t, config)
	namespace := createConfigMap(t, c)
	const lists = 20
	for range lists {
		if _, err := c.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, event := range events {
		if event.UserAgent == t.Name() && event.User == AdminUser {
			count[event.Verb+" "+event.Resource]++
		}
	}
	want := map[string]int{"create namespaces": 1, "create configmaps": 1, "list configmaps": lists}
	for what, n := range want {
		if count[what] != n {
			t.Errorf("%s: %d requests in the audit log, want %d (all: %v)", what, count[what], n, count)
		}
	}
	if len(count) != len(want) {
		t.Errorf("requests in the audit log: %v, want %v", count, want)
	}
}

func TestAPIServer_ConfigFor_LimitedAndUnknownUsers(t *testing.T) {
	api := shared(t).API
	if err := getConfigMap(t.Context(), client(t, api.ConfigFor(LimitedUser)), "default"); !apierrors.IsForbidden(err) {
		t.Errorf("limited user: %v, want 403", err)
	}
	if err := getConfigMap(t.Context(), client(t, api.ConfigFor("nobody")), "default"); !apierrors.IsUnauthorized(err) {
		t.Errorf("unknown user: %v, want 401", err)
	}
}

func TestAPIServer_ReportsTheVersionItWasBuiltFrom(t *testing.T) {
	version, err := client(t, shared(t).API.Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.37.2" {
		t.Errorf("version %q, want that of the module", version.GitVersion)
	}
}

func TestAPIServer_Metric_CountsRequests(t *testing.T) {
	api := shared(t).API
	requests := func() float64 {
		t.Helper()
		n, err := api.Metric(t.Context(), "apiserver_request_total", map[string]string{"resource": "limitranges", "verb": "LIST"})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := requests()
	if _, err := client(t, api.Config()).CoreV1().LimitRanges("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := requests() - before; got != 1 {
		t.Errorf("counted %v requests, want 1", got)
	}
}

func TestControlPlane_AddAPIServer_ServesTheSameObjects(t *testing.T) {
	cp := shared(t)
	second, err := cp.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	namespace := createConfigMap(t, client(t, cp.API.Config()))
	if err := getConfigMap(t.Context(), client(t, second.Config()), namespace); err != nil {
		t.Error(err)
	}
	events, err := second.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if event.Verb == "create" && event.Namespace == namespace {
			t.Errorf("the second server's audit log has a request to the first: %+v", event)
		}
	}
}

// Watches stay open for as long as the server lets them.
func TestAPIServer_Stop_EndsByItselfDespiteAnOpenWatch(t *testing.T) {
	second, err := shared(t).AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client(t, second.Config()).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	proc := second.process()
	second.Stop()
	if code := proc.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d (-1 is a signal), want 0", code)
	}
}

// One control plane goes through all of its life, because each start takes
// seconds.
func TestControlPlane_SurvivesRestartsAndLeavesNothingBehind(t *testing.T) {
	cp := start(t, Options{APIServerArgs: []string{"--default-watch-cache-size=50"}})
	c := client(t, cp.API.Config())
	namespace := createConfigMap(t, c)
	port := cp.API.Port()

	restarts := []struct {
		name    string
		restart func(context.Context) error
	}{
		{"API server, stopped", cp.API.Restart},
		{"API server, killed", func(ctx context.Context) error {
			cp.API.Kill()
			return cp.API.Start(ctx)
		}},
		{"API server, other arguments", func(ctx context.Context) error {
			cp.API.SetArgs("--watch-cache=false")
			return cp.API.Restart(ctx)
		}},
		{"etcd, stopped", cp.Etcd.Restart},
	}
	for _, test := range restarts {
		if err := test.restart(t.Context()); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if err := getConfigMap(t.Context(), c, namespace); err != nil {
			t.Errorf("%s: the old client: %v", test.name, err)
		}
	}
	if cp.API.Port() != port {
		t.Errorf("the API server moved from port %d to %d", port, cp.API.Port())
	}

	pids := []int{cp.API.PID(), cp.Etcd.PID()}
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if pid == 0 || !gone(pid) {
			t.Errorf("process %d was left running", pid)
		}
	}
	if listener, err := net.Listen("tcp", hostPort(port)); err != nil {
		t.Errorf("the API server's port: %v", err)
	} else {
		listener.Close()
	}
	if _, err := os.Stat(cp.dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory: %v, want it gone", err)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestControlPlane_KeepsADirectoryThatItWasGiven(t *testing.T) {
	dir := t.TempDir()
	cp := start(t, Options{Dir: dir})
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	if !exists(cp.DataDir()) {
		t.Error("the data of etcd is gone")
	}
}

func TestStart_LeavesNothingRunningAfterAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := Start(t.Context(), Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}}); err == nil {
		t.Fatal("an API server with a wrong flag started")
	}
	// A running etcd holds a lock on its database.
	db, err := os.Open(filepath.Join(dir, "etcd", "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := syscall.Flock(int(db.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("etcd was left running: %v", err)
	}
}
