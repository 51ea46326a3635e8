package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store/bolt"
	"github.com/warmcache/warmcache/store/bolt/bolttest"
)

// TestAudit audits informers in every form while objects change. There is nothing to
// find, whatever form objects and metadata travel in, until the caches are corrupted.
func TestAudit(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		writer := clientFor(t, "writer")
		namespace := newNamespace(t, writer)
		for _, name := range names("full", 20) {
			applyFull(t, writer, namespace, name)
		}
		createConfigMap(t, writer, namespace, "busy")
		informers := startAudited(t, namespace, r)
		keepBusy(t, writer, namespace, "busy")
		for form, inf := range informers {
			if report := awaitAudit(t, inf); report.Result() != audit.Verified || report.Objects < 21 {
				t.Errorf("%s: %s: %+v", form, report.Result(), report)
			}
		}
		for form, inf := range informers {
			corrupt(t, inf, namespace)
			report := awaitAudit(t, inf)
			for report.Result() == audit.Verified { // it was under way
				report = awaitAudit(t, inf)
			}
			if report.Result() != audit.Repaired || report.Missing != 1 || report.Extra != 1 || report.Different != 1 {
				t.Errorf("%s: %s: %+v", form, report.Result(), report)
			}
			if report := awaitAudit(t, inf); report.Result() != audit.Verified {
				t.Errorf("%s, after the repair: %s: %+v", form, report.Result(), report)
			}
		}
		for name, rv := range freshList(t, writer, namespace) {
			for form, inf := range informers {
				if obj, exists, err := inf.GetStore().GetByKey(name); name != namespace+"/busy" && (!exists || err != nil || versionOf(obj) != rv) {
					t.Errorf("%s: %s: %v, %v, %v, want version %s", form, name, exists, err, versionOf(obj), rv)
				}
			}
		}
	})
}

// applyFull makes two managers apply an object that has metadata of every kind, with
// characters that encodings of JSON spell in different ways.
func applyFull(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	for n, manager := range []string{"one", "two"} {
		patch := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%[2]q,
			"labels":{"e2e.warmcache.dev/n%[1]d":"x"},"annotations":{"note-%[1]d":"a<b>&\"c\""},"finalizers":["e2e.warmcache.dev/f%[1]d"],
			"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"n%[1]d","uid":"a&b<%[1]d>"}]},
			"data":{"key-%[1]d":"v"}}`, n, name)
		options := metav1.PatchOptions{FieldManager: manager, Force: ptr.To(true)}
		if _, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, types.ApplyPatchType, patch, options); err != nil {
			t.Fatal(err)
		}
	}
}

// startAudited runs informers of the ConfigMaps of a namespace, in every form, that are
// audited every few seconds.
func startAudited(t *testing.T, namespace string, r informer.Residency) map[string]cache.SharedIndexInformer {
	t.Helper()
	config := plane.API.Config()
	config.UserAgent = t.Name()
	typedClient, err := kubernetes.NewForConfig(config)
	noError(t, err)
	dynamicClient, err := dynamic.NewForConfig(config)
	noError(t, err)
	metadataClient, err := metadata.NewForConfig(config)
	noError(t, err)
	db := bolttest.Open(t, filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
	options := []factory.Option{
		factory.WithNamespace(namespace), factory.WithResidency(r, leastBudget(r)),
		factory.WithMetadataClient(metadataClient), factory.WithAudit(informer.Audit{Period: 2 * time.Second}),
	}
	typed, err := factory.New(typedClient, db, options...)
	noError(t, err)
	unstructured, err := factory.NewDynamic(dynamicClient, db, options...)
	noError(t, err)
	partial, err := factory.NewMetadata(metadataClient, db, options...)
	noError(t, err)
	informers := map[string]cache.SharedIndexInformer{
		"typed":        typed.Core().V1().ConfigMaps().Informer(),
		"unstructured": unstructured.ForResource(configMaps.resource).Informer(),
		"metadata":     partial.ForResource(configMaps.resource).Informer(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for form, inf := range informers {
		running.Go(func() { inf.RunWithContext(ctx) })
		if !cache.WaitFor(patiently(t), form, inf.HasSyncedChecker()) {
			t.Fatalf("%s has not synced", form)
		}
	}
	return informers
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keepBusy changes an object several times a second until the test ends.
func keepBusy(t *testing.T, client kubernetes.Interface, namespace, name string) {
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n)
			_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() { cancel(); busy.Wait() })
}

// awaitAudit waits for the end of the next audit of an informer.
func awaitAudit(t *testing.T, inf cache.SharedIndexInformer) audit.Report {
	t.Helper()
	last := func() audit.Report {
		status, _ := informer.StatusOf(inf)
		return status.Audit.Last
	}
	ctx, before := patiently(t), last().Finished
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if now := last(); !now.Finished.Equal(before) {
			return now
		}
		select {
		case <-ctx.Done():
			t.Fatal("no audit came to its end")
		case <-ticker.C:
		}
	}
}

// corrupt makes an object missing, one extra, and one different.
func corrupt(t *testing.T, inf cache.SharedIndexInformer, namespace string) {
	t.Helper()
	change := func(name string, change func(metav1.Object)) runtime.Object {
		obj, exists, err := inf.GetIndexer().GetByKey(namespace + "/" + name)
		if !exists || err != nil {
			t.Fatalf("%s: %v, %v", name, exists, err)
		}
		copied := obj.(runtime.Object).DeepCopyObject()
		accessor, err := meta.Accessor(copied)
		noError(t, err)
		change(accessor)
		return copied
	}
	noError(t, inf.GetIndexer().Delete(change("full-000", func(metav1.Object) {})))
	noError(t, inf.GetIndexer().Update(change("full-001", func(m metav1.Object) { m.SetLabels(nil) })))
	noError(t, inf.GetIndexer().Add(change("full-002", func(m metav1.Object) { m.SetName("ghost"); m.SetUID("ghost") })))
}

func versionOf(obj any) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}
