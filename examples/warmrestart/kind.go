package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/apitest"
)

// kind is what the demo creates and watches.
type kind struct {
	gvr schema.GroupVersionResource
	// make returns object number i.
	make func(namespace string, i int) runtime.Object
	// informer asks a factory, client-go's or ours, for the informer.
	informer func(informers.SharedInformerFactory) cache.SharedIndexInformer
}

// kindFor returns Pods for the embedded server. In a real cluster it is
// ConfigMaps of the same size: pods of nobody would meet admission webhooks and
// quotas, and alert people.
func kindFor(embedded bool) kind {
	if embedded {
		return kind{
			gvr:  corev1.SchemeGroupVersion.WithResource("pods"),
			make: func(namespace string, i int) runtime.Object { return apitest.Pod(namespace, objectName(i), i) },
			informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Core().V1().Pods().Informer()
			},
		}
	}
	return kind{
		gvr:  corev1.SchemeGroupVersion.WithResource("configmaps"),
		make: func(namespace string, i int) runtime.Object { return configMap(namespace, i) },
		informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().ConfigMaps().Informer()
		},
	}
}

// objectName returns names that sort in another order than their numbers, so
// that neighbours in the file are not those that were written together.
func objectName(i int) string { return apitest.PodName(i) }

// settings is the number of entries that bring a ConfigMap, with the
// managedFields that the server adds, to 5 KB.
const settings = 48

// configMap returns an application's settings. They are more alike than those of
// a real cluster, and compress better.
func configMap(namespace string, i int) *corev1.ConfigMap {
	data := make(map[string]string, settings)
	for n := range settings {
		name := fmt.Sprintf("service.%02d.endpoint", n)
		data[name] = fmt.Sprintf("https://backend-%05d-%02d.example.internal:8443/api", i, n)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      objectName(i),
			Labels:    map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%03d", i/30)},
		},
		Data: data,
	}
}
