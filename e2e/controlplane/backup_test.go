package controlplane

import (
	"context"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// revisionOf returns the current resourceVersion.
func revisionOf(ctx context.Context, t *testing.T, c *kubernetes.Clientset) int64 {
	t.Helper()
	list, err := c.CoreV1().LimitRanges("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// One control plane for all of it, because each start takes seconds.
func TestControlPlane_Restore_GoesBackToTheBackup(t *testing.T) {
	cp := start(t, Options{})
	c := client(t, cp.API.Config())
	kept := createConfigMap(t, c)
	backup, err := cp.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := revisionOf(t.Context(), t, c)
	lost := createConfigMap(t, c)
	if got, err := cp.AdvanceTo(t.Context(), at+1000); err != nil || got < at+1000 {
		t.Fatalf("advanced to %d, %v; want %d or more", got, err, at+1000)
	}
	if now := revisionOf(t.Context(), t, c); now < at+1000 {
		t.Errorf("the API server is at %d, want %d or more", now, at+1000)
	}

	wantBackup := func() (now int64) {
		t.Helper()
		if err := getConfigMap(t.Context(), c, kept); err != nil {
			t.Errorf("of before the backup: %v", err)
		}
		if err := getConfigMap(t.Context(), c, lost); !apierrors.IsNotFound(err) {
			t.Errorf("of after the backup: %v, want not found", err)
		}
		return revisionOf(t.Context(), t, c)
	}
	if err := cp.Restore(t.Context(), backup, RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := wantBackup(); now < at || now >= at+1000 {
		t.Errorf("at %d, want %d or little more", now, at)
	}
	const bump = 1_000_000
	if err := cp.Restore(t.Context(), backup, RestoreOptions{Bump: bump}); err != nil {
		t.Fatal(err)
	}
	if now := wantBackup(); now < at+bump {
		t.Errorf("at %d, want %d or more", now, at+bump)
	}
}

func TestStart_SameAccess_TakesTheClientsOfAnother(t *testing.T) {
	first := shared(t)
	second := start(t, Options{SameAccess: first})
	config := first.API.Config()
	config.Host = second.API.Config().Host
	c := client(t, config)
	if _, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	keys := func(cp *ControlPlane) string {
		t.Helper()
		keys, err := cp.API.get(t.Context(), "/openid/v1/jwks")
		if err != nil {
			t.Fatal(err)
		}
		return string(keys)
	}
	if keys(first) == keys(second) {
		t.Error("both control planes have the same keys of service accounts")
	}

	if err := second.API.RenewCertificate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := getConfigMap(t.Context(), client(t, second.API.Config()), "default"); !apierrors.IsNotFound(err) {
		t.Errorf("with the new CA: %v, want not found", err)
	}
	config.NextProtos = []string{"http/1.1"} // The client above has an open connection.
	if err := getConfigMap(t.Context(), client(t, config), "default"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("with the old CA: %v, want an error of TLS", err)
	}
}
