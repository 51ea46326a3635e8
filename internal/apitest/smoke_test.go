package apitest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

func TestSmoke(t *testing.T) {
	for _, ct := range []string{"application/json", "application/vnd.kubernetes.protobuf,application/json"} {
		t.Run(ct, func(t *testing.T) {
			srv, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			cfg := srv.RESTConfig()
			cfg.AcceptContentTypes = ct
			cs := kubernetes.NewForConfigOrDie(cfg)
			for i := range 10 {
				if err := srv.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("p", i), Labels: map[string]string{"a": "b"}}}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			l, err := cs.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 3})
			t.Log(len(l.Items), l.ListMeta, *l.RemainingItemCount, err)
			l, err = cs.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 30, Continue: l.Continue})
			t.Log(len(l.Items), l.ListMeta, err)
			f := informers.NewSharedInformerFactory(cs, 0)
			inf := f.Core().V1().Pods()
			inf.Informer()
			f.StartWithContext(ctx)
			t.Log(f.WaitForCacheSyncWithContext(ctx))
			secs := int64(3)
			w, err := cs.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: "5", AllowWatchBookmarks: true, TimeoutSeconds: &secs})
			if err != nil {
				t.Fatal(err)
			}
			srv.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}})
			cs.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 3})
			for e := range w.ResultChan() {
				o := e.Object.(metav1.Object)
				t.Log(e.Type, o.GetName(), o.GetResourceVersion())
			}
			for _, r := range srv.Requests() {
				t.Logf("%+v", r)
			}
			t.Logf("%+v", srv.Counts())
			cancel()
			f.Shutdown()
		})
	}
	for _, r := range newStorage(1).resources() {
		t.Log(r.gvr, r.gvk.Kind, r.namespaced)
	}
}
