package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmcache/warmcache/internal/apitest"
)

func kubeconfigFor(server string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: test}
clusters:
- name: test
  cluster:
    server: %q
users:
- name: test
  user: {}
`, server)
}

// someCluster stands for the cluster of a user: it was there before the demo.
func someCluster(t *testing.T) (server *apitest.Server, kubeconfig string) {
	t.Helper()
	server, err := apitest.New(apitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Create(configMap("default", 0)); err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(kubeconfigFor(server.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, kubeconfig
}

// checkUntouched checks that nothing of the demo is left in the cluster, and
// everything else is.
func checkUntouched(t *testing.T, server *apitest.Server) {
	t.Helper()
	for resource, want := range map[string]string{"namespaces": "default kube-public kube-system", "configmaps": objectName(0)} {
		objs, _, err := server.List(corev1.SchemeGroupVersion.WithResource(resource), "")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, obj := range objs {
			names = append(names, obj.(metav1.Object).GetName())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the cluster has the %s %q, want %q", resource, got, want)
		}
	}
}

func TestRun_UsesAClusterAndLeavesItAsItWas(t *testing.T) {
	t.Parallel()
	server, kubeconfig := someCluster(t)
	got := runDemo(t.Context(), runProcess, "-objects", "50", "-kubeconfig", kubeconfig, "-o", "json")
	r, _ := got.parse(t)
	if got.exit != exitOK || r.Server != server.URL() || r.Objects != 50 {
		t.Errorf("exit = %d, report = %+v; stderr:\n%s", got.exit, r, got.stderr)
	}
	checkWarm(t, "warm", r.Warm, planFor(50), r.Cold)
	checkUntouched(t, server)
}

func TestRun_ClusterThatDoesNotAllowIt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]apitest.Fault{
		"namespaces forbidden": {Verb: "create", Resource: "namespaces", Status: http.StatusForbidden},
		"lists forbidden":      {Verb: "list", Resource: "configmaps", Status: http.StatusForbidden},
		"unauthorized":         {Status: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, kubeconfig := someCluster(t)
			server.Inject(fault)
			got := runDemo(t.Context(), noProcess(t), "-kubeconfig", kubeconfig)
			if got.exit != exitBadInput || !strings.Contains(got.stderr, kubeconfig) {
				t.Errorf("exit = %d; stderr:\n%s", got.exit, got.stderr)
			}
			checkOneLine(t, got)
			checkUntouched(t, server)
		})
	}
}

// TestRun_CleansUp is not parallel because it looks at the directory for
// temporary files.
func TestRun_CleansUp(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(cancel context.CancelFunc) processRunner
		exit int
	}{
		"after an interrupt": {func(cancel context.CancelFunc) processRunner {
			return func(ctx context.Context, spec childSpec, stderr io.Writer) (*childReport, error) {
				cancel()
				return runProcess(ctx, spec, stderr)
			}
		}, exitInterrupted},
		"after an error": {func(context.CancelFunc) processRunner {
			return func(ctx context.Context, spec childSpec, stderr io.Writer) (*childReport, error) {
				spec.Kubeconfig = "/nonexistent"
				return runProcess(ctx, spec, stderr)
			}
		}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			server, kubeconfig := someCluster(t)
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := runDemo(ctx, test.run(cancel), "-objects", "20", "-kubeconfig", kubeconfig)
			if got.exit != test.exit {
				t.Errorf("exit = %d; stderr:\n%s", got.exit, got.stderr)
			}
			if !strings.Contains(got.stderr, "\nwarmrestart: ") || got.stdout != "" {
				t.Errorf("stdout = %q, stderr = %q", got.stdout, got.stderr)
			}
			checkUntouched(t, server)
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("temporary files left: %v, %v", left, err)
			}
		})
	}
}

func TestConfigMap_IsAsLargeAsAPod(t *testing.T) {
	pod, cm := apitest.Pod("x", objectName(0), 0), configMap("x", 0)
	// The server adds a field of 30 bytes to managedFields for each entry.
	if got := cm.Size() + 30*settings; got < pod.Size()*9/10 || got > pod.Size()*11/10 {
		t.Errorf("ConfigMap has %d bytes, a pod %d", got, pod.Size())
	}
}
