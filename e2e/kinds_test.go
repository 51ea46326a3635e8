package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kind is a type of object that the tests keep in an informer.
type kind struct {
	resource schema.GroupVersionResource
	create   func(ctx context.Context, client kubernetes.Interface, metadata metav1.ObjectMeta) error
	patch    func(ctx context.Context, client kubernetes.Interface, namespace, name string, patch []byte) error
	remove   func(ctx context.Context, client kubernetes.Interface, namespace, name string) error
	list     func(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) (runtime.Object, error)
}

// typedClient is what clients of all types have in common.
type typedClient[Object, List any] interface {
	Create(context.Context, Object, metav1.CreateOptions) (Object, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (Object, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	List(context.Context, metav1.ListOptions) (List, error)
}

// kindOf makes a kind from the client of a type and the smallest object that the
// server accepts.
func kindOf[Object any, List runtime.Object, Client typedClient[Object, List]](
	resource schema.GroupVersionResource,
	in func(kubernetes.Interface, string) Client,
	object func(metav1.ObjectMeta) Object,
) kind {
	return kind{
		resource: resource,
		create: func(ctx context.Context, client kubernetes.Interface, metadata metav1.ObjectMeta) error {
			_, err := in(client, metadata.Namespace).Create(ctx, object(metadata), metav1.CreateOptions{})
			return err
		},
		patch: func(ctx context.Context, client kubernetes.Interface, namespace, name string, patch []byte) error {
			_, err := in(client, namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		remove: func(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
			return in(client, namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		list: func(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) (runtime.Object, error) {
			return in(client, namespace).List(ctx, options)
		},
	}
}

var (
	configMaps = kindOf(corev1.SchemeGroupVersion.WithResource("configmaps"),
		func(client kubernetes.Interface, namespace string) typedClient[*corev1.ConfigMap, *corev1.ConfigMapList] {
			return client.CoreV1().ConfigMaps(namespace)
		},
		func(metadata metav1.ObjectMeta) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metadata} })

	// Nobody schedules them.
	pods = kindOf(corev1.SchemeGroupVersion.WithResource("pods"),
		func(client kubernetes.Interface, namespace string) typedClient[*corev1.Pod, *corev1.PodList] {
			return client.CoreV1().Pods(namespace)
		},
		func(metadata metav1.ObjectMeta) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metadata, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "container", Image: "image"}},
			}}
		})

	leases = kindOf(coordinationv1.SchemeGroupVersion.WithResource("leases"),
		func(client kubernetes.Interface, namespace string) typedClient[*coordinationv1.Lease, *coordinationv1.LeaseList] {
			return client.CoordinationV1().Leases(namespace)
		},
		func(metadata metav1.ObjectMeta) *coordinationv1.Lease {
			return &coordinationv1.Lease{ObjectMeta: metadata}
		})

	// Nodes are in no namespace; the tests' namespaces are part of their names.
	nodes = kindOf(corev1.SchemeGroupVersion.WithResource("nodes"),
		func(client kubernetes.Interface, _ string) typedClient[*corev1.Node, *corev1.NodeList] {
			return client.CoreV1().Nodes()
		},
		func(metadata metav1.ObjectMeta) *corev1.Node {
			metadata.Namespace = ""
			return &corev1.Node{ObjectMeta: metadata}
		})

	// By default kube-apiserver has no watch cache for events.
	events = kindOf(corev1.SchemeGroupVersion.WithResource("events"),
		func(client kubernetes.Interface, namespace string) typedClient[*corev1.Event, *corev1.EventList] {
			return client.CoreV1().Events(namespace)
		},
		func(metadata metav1.ObjectMeta) *corev1.Event {
			return &corev1.Event{ObjectMeta: metadata, InvolvedObject: corev1.ObjectReference{
				Kind: "ConfigMap", Namespace: metadata.Namespace, Name: "object",
			}}
		})
)

// state is what identifies one state of one object.
type state struct {
	UID, RV string
	// Content is a hash of the object as JSON.
	Content string
	// Empty has the paths of what is empty and not nil, which Content cannot tell.
	Empty string
}

// kindless is an object of which a list shows the kind and a watch does not.
type kindless interface{ withoutKind() any }

func stateOf(obj any) (key string, s state, err error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", state{}, err
	}
	if w, ok := obj.(kindless); ok {
		obj = w.withoutKind()
	}
	content, err := json.Marshal(obj)
	if err != nil {
		return "", state{}, err
	}
	return cache.MetaObjectToName(accessor).String(), state{
		UID: string(accessor.GetUID()), RV: accessor.GetResourceVersion(),
		Content: fmt.Sprintf("%x", sha256.Sum256(content))[:16],
		Empty:   strings.Join(appendEmpty(nil, "", reflect.ValueOf(obj)), " "),
	}, nil
}

// appendEmpty appends the paths below v of slices and maps that are empty and not
// nil.
func appendEmpty(paths []string, path string, v reflect.Value) []string {
	kind := v.Kind()
	if (kind == reflect.Slice || kind == reflect.Map) && !v.IsNil() && v.Len() == 0 {
		return append(paths, path)
	}
	switch kind {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			paths = appendEmpty(paths, path, v.Elem())
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.IsExported() {
				paths = appendEmpty(paths, path+"."+field.Name, value)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			paths = appendEmpty(paths, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			paths = appendEmpty(paths, fmt.Sprintf("%s[%v]", path, key), value)
		}
	}
	slices.Sort(paths)
	return paths
}

// statesOf returns the states of all objects of a list by their keys.
func statesOf(objects []any) (map[string]state, error) {
	states := map[string]state{}
	for _, obj := range objects {
		key, s, err := stateOf(obj)
		if err != nil {
			return nil, err
		}
		states[key] = s
	}
	return states, nil
}

// fresh returns what the server has, from a consistent read.
func (k kind) fresh(t *testing.T, client kubernetes.Interface, namespace string, options metav1.ListOptions) map[string]state {
	t.Helper()
	list, err := k.list(t.Context(), client, namespace, options)
	if err != nil {
		t.Fatal(err)
	}
	states, err := statesOfList(list)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// annotate returns a patch that sets the annotation "value".
func annotate(value string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{"value":%q}}}`, value)
}

// objectMeta returns metadata of an object whose size is about the given number
// of bytes, with labels from a list like "a=b,c=d".
func objectMeta(namespace, name string, size int, labels string) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{},
		Annotations: map[string]string{"padding": strings.Repeat("x", size)},
	}
	for pair := range strings.SplitSeq(labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			metadata.Labels[key] = value
		}
	}
	return metadata
}

func TestAppendEmpty_TellsNilFromEmpty(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Args: []string{}, Command: []string{"command"}}},
			Volumes:    []corev1.Volume{},
		},
	}
	got := appendEmpty(nil, "", reflect.ValueOf(pod))
	want := []string{".ObjectMeta.Labels", ".Spec.Containers[0].Args", ".Spec.Volumes"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
