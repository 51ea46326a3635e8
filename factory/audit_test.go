package factory

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/audit"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/apitest"
)

// everyMinute are the options of factories whose informers are audited.
func everyMinute(server *apitest.Server) []Option {
	return []Option{
		WithMetadataClient(must(metadata.NewForConfig(server.RESTConfig()))),
		WithAudit(informer.Audit{Period: time.Minute}),
	}
}

// awaitAudit waits for the end of an informer's next audit.
func awaitAudit(t *testing.T, inf cache.SharedIndexInformer) audit.Report {
	t.Helper()
	before := statusOf(inf).Audit.Last.Finished
	for range 600 {
		time.Sleep(time.Second)
		synctest.Wait()
		if now := statusOf(inf).Audit.Last; !now.Finished.Equal(before) {
			return now
		}
	}
	t.Fatal("no audit came to its end")
	return audit.Report{}
}

// wantAudited checks that an audit of an informer compares it with what it lists, all of
// that and nothing else, and that it repairs it.
func wantAudited(t *testing.T, name string, inf cache.SharedIndexInformer) {
	t.Helper()
	before := objectsOf(inf)
	if r := awaitAudit(t, inf); r.Result() != audit.Verified || r.Objects != len(before) {
		t.Errorf("%s: %+v, want %d objects", name, r, len(before))
	}
	for key := range before {
		namespace, object, _ := cache.SplitMetaNamespaceKey(key)
		if err := inf.GetIndexer().Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object}}); err != nil {
			t.Fatal(err)
		}
		break
	}
	if r := awaitAudit(t, inf); r.Result() != audit.Repaired || r.Missing != 1 {
		t.Errorf("%s: %+v, want one object missing", name, r)
	}
	if now := objectsOf(inf); len(now) != len(before) {
		t.Errorf("%s: %d objects after the repair, want %d", name, len(now), len(before))
	}
}

func TestEachDoor_Audit(t *testing.T) {
	selecting := []Option{WithNamespace("web"), WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=x" })}
	throughEachDoor(t, func(t *testing.T, server *apitest.Server, d door) {
		create(t, server, labelled("web", "a", "x"), labelled("web", "b", "x"), labelled("web", "c", "y"), labelled("db", "a", "x"))
		f := d.real(t, server, newStore(), append(everyMinute(server), selecting...)...)
		inf := f.ForResource(configMaps).Informer()
		stop := runFactory(t, f)
		f.WaitForCacheSync(t.Context().Done())
		wantKeys(t, inf, "web/a", "web/b")
		wantAudited(t, string(d.form), inf)
		stop()
	})
	inCluster(t, func(t *testing.T, c *cluster) {
		c.create(labelled("web", "a", "x"), labelled("web", "b", "x"), labelled("web", "c", "y"), labelled("db", "a", "x"))
		clients := must(kubernetes.NewForConfig(c.server.RESTConfig()))
		f := must(New(clients, newStore(), append(everyMinute(c.server), selecting...)...))
		inf := f.Core().V1().ConfigMaps().Informer()
		stop := runFactory(t, f)
		f.WaitForCacheSync(t.Context().Done())
		wantKeys(t, inf, "web/a", "web/b")
		wantAudited(t, "typed", inf)
		stop()
	})
}

// TestNewInformerFunc_Audit has informers whose namespace and selectors are hidden.
func TestNewInformerFunc_Audit(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		for _, namespace := range []string{"web", "db"} {
			for _, name := range []string{"a", "b", "c"} {
				c.create(labelled(namespace, name, "x"))
			}
		}
		a := c.begin(everyMinute(c.server)...)
		for name, inf := range watched(t, a, c) {
			if len(inf.GetStore().ListKeys()) == 0 {
				continue // of widgets
			}
			wantAudited(t, name, inf)
		}
	})
}

// What is not known to list anything is not audited, and says so.
func TestNewInformerFunc_Audit_NotIdentified(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.begin(everyMinute(c.server)...)
		inf := a.informer(hidden{}.configMaps(t, c.server.RESTConfig()), &corev1.ConfigMap{})
		if r := awaitAudit(t, inf); r.Result() != audit.Failed || !errors.Is(r.Err, ErrNotIdentified) {
			t.Errorf("%+v", r)
		}
	})
}

// A tweak that does more than select makes another list than an audit could compare.
func TestWithAudit_Unpersistable(t *testing.T) {
	tweak := WithTweakListOptions(func(o *metav1.ListOptions) { o.ResourceVersion = "0" })
	audited := WithAudit(informer.Audit{Period: time.Minute})
	client := WithMetadataClient(metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()))
	for _, door := range []string{"New", "NewDynamic", "NewMetadata", "Adopt"} {
		if o := optionsOf(t, door, configMaps, client, audited, tweak); o.Audit != (informer.Audit{}) || o.Metadata != nil {
			t.Errorf("%s: %+v", door, o.Audit)
		}
		if o := optionsOf(t, door, configMaps, client, audited); o.Audit.Period != time.Minute || o.Metadata == nil {
			t.Errorf("%s: %+v", door, o.Audit)
		}
	}
}

func TestEachDoor_InvalidAudit(t *testing.T) {
	client := WithMetadataClient(metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()))
	for name, test := range map[string]struct {
		opts []Option
		want string
	}{
		"nil client":    {[]Option{WithMetadataClient((*metadatafake.FakeMetadataClient)(nil))}, "WithMetadataClient: the client is nil"},
		"no client":     {[]Option{WithAudit(informer.Audit{Period: time.Hour})}, "WithAudit needs WithMetadataClient"},
		"no period":     {[]Option{client, WithAudit(informer.Audit{Rate: 5})}, "WithAudit: Period 0s"},
		"negative rate": {[]Option{client, WithAudit(informer.Audit{Period: time.Hour, Rate: -5})}, "Rate -5"},
	} {
		for door, ask := range askings {
			_, _, err := ask(nil, test.opts)
			if door == "NewMetadata" && name == "no client" { // it has one
				if err != nil {
					t.Errorf("%s: %s: %v", door, name, err)
				}
				continue
			}
			if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %s: %v, want %q", door, name, err, test.want)
			}
		}
	}
}
