package codec

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/warmcache/warmcache/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustNew returns the codec of example's type.
func mustNew(t testing.TB, example runtime.Object) *Codec {
	t.Helper()
	c, err := New(example)
	if err != nil {
		t.Fatalf("New(%T): %v", example, err)
	}
	return c
}

// mustEncode returns the record of obj.
func mustEncode(t testing.TB, c *Codec, obj runtime.Object) []byte {
	t.Helper()
	record, err := c.Encode(obj)
	if err != nil {
		t.Fatalf("Encode(%T): %v\n%+v", obj, err, obj)
	}
	return record
}

// roundTrip encodes and decodes obj, then overwrites the record, so that memory
// shared with it shows in the comparison that follows. It checks that obj was
// left alone, that encoding is deterministic, and that an object that came back
// identical has the same record.
func roundTrip(t testing.TB, c *Codec, obj runtime.Object) runtime.Object {
	t.Helper()
	before := obj.DeepCopyObject()
	record := mustEncode(t, c, obj)
	if again := mustEncode(t, c, before); !bytes.Equal(record, again) {
		t.Errorf("%T: a deep copy encodes differently:\n%q\n%q", obj, record, again)
	}
	scratch := bytes.Clone(record)
	got, err := c.Decode(scratch)
	if err != nil {
		t.Fatalf("Decode(%T): %v", obj, err)
	}
	for i := range scratch {
		scratch[i] = 'X'
	}
	if !reflect.DeepEqual(before, obj) {
		t.Errorf("Encode changed its argument:\n%+v\n%+v", before, obj)
	}
	if again := mustEncode(t, c, got); reflect.DeepEqual(got, obj) && !bytes.Equal(record, again) {
		t.Errorf("%T: the decoded object encodes differently:\n%q\n%q", obj, record, again)
	}
	return got
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "prod", UID: "0d9f", ResourceVersion: "4711",
			CreationTimestamp: metav1.Time{Time: time.Unix(1700000000, 0)},
			Labels:            map[string]string{"app": "web", "tier": "front"},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	}
}

func testUnstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": "w", "namespace": "prod", "uid": "0d9f", "resourceVersion": "4711",
			"labels": map[string]any{"app": "web", "tier": "front"},
		},
		"spec": map[string]any{"size": int64(3)},
	}}
}

func testMetadata() *metav1.PartialObjectMetadata {
	at := metav1.Time{Time: time.Unix(1700000001, 0)}
	obj := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
		ObjectMeta: testPod().ObjectMeta,
	}
	obj.DeletionTimestamp = &at
	obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Time: &at, FieldsV1: metav1.NewFieldsV1("{}")}}
	return obj
}

// examples has one object per payload kind.
func examples() map[PayloadKind]runtime.Object {
	return map[PayloadKind]runtime.Object{
		PayloadProtobuf:     testPod(),
		PayloadUnstructured: testUnstructured(),
		PayloadMetadata:     testMetadata(),
		PayloadJSON:         testGadget(),
	}
}

func TestNew_ChoosesPayloadByType(t *testing.T) {
	for want, example := range examples() {
		c := mustNew(t, example)
		if got := c.payload.kind(); got != want {
			t.Errorf("New(%T) uses %v, want %v", example, got, want)
		}
		if got := roundTrip(t, c, example); !equality.Semantic.DeepEqual(got, example) {
			t.Errorf("%v: got %+v, want %+v", want, got, example)
		}
	}
	if got := mustNew(t, (*corev1.Pod)(nil)).payload.kind(); got != PayloadProtobuf {
		t.Errorf("a nil *Pod as example uses %v", got)
	}
}

// typeInGlobalScheme has protobuf of its own, as some operators' types do.
type typeInGlobalScheme struct{ corev1.Pod }

func (t *typeInGlobalScheme) DeepCopyObject() runtime.Object {
	return &typeInGlobalScheme{Pod: *t.Pod.DeepCopy()}
}

func TestNew_ProtobufOnlyForBuiltinTypes(t *testing.T) {
	if got := mustNew(t, &typeInGlobalScheme{}).payload.kind(); got != PayloadJSON {
		t.Errorf("a custom type with protobuf methods uses %v, want json", got)
	}
}

type notAStruct string

func (notAStruct) GetObjectKind() schema.ObjectKind { return nil }
func (n notAStruct) DeepCopyObject() runtime.Object { return n }

func TestNew_RejectsUnsupportedTypes(t *testing.T) {
	for _, example := range []runtime.Object{nil, notAStruct(""), &unstructured.UnstructuredList{}} {
		if _, err := New(example); !errors.Is(err, ErrUnsupportedType) {
			t.Errorf("New(%T) = %v, want ErrUnsupportedType", example, err)
		}
	}
}

func TestCodec_Encode_RejectsOtherTypes(t *testing.T) {
	c := mustNew(t, &corev1.Pod{})
	_, err := c.Encode(&corev1.Service{})
	if !errors.Is(err, ErrWrongType) || !strings.Contains(err.Error(), "*v1.Service") || !strings.Contains(err.Error(), "*v1.Pod") {
		t.Errorf("error %v does not name both types", err)
	}
	for _, obj := range []runtime.Object{nil, (*corev1.Pod)(nil)} {
		if _, err := c.Encode(obj); !errors.Is(err, ErrWrongType) {
			t.Errorf("Encode(%#v) = %v, want ErrWrongType", obj, err)
		}
	}
}

func TestCodec_Decode_RejectsForeignRecords(t *testing.T) {
	all := examples()
	for from, obj := range all {
		record := mustEncode(t, mustNew(t, obj), obj)
		for to, example := range all {
			_, err := mustNew(t, example).Decode(record)
			if from != to && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%v record decoded as %v: %v", from, to, err)
			}
		}
	}
	// The same type under another payload kind, as after a type has moved into
	// client-go's scheme.
	c := mustNew(t, &corev1.ConfigMap{})
	other := &Codec{typ: c.typ, id: c.id, payload: jsonPayload{}}
	if _, err := c.Decode(underEnvelope(other, nil)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("JSON decoded as protobuf: %v", err)
	}
	// Same payload kind, and protobuf that both types would accept.
	record := mustEncode(t, mustNew(t, &corev1.ConfigMap{}), &corev1.ConfigMap{})
	if _, err := mustNew(t, &corev1.Secret{}).Decode(record); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a ConfigMap decoded as a Secret: %v", err)
	}
}

func TestCodec_Decode_RestoresTypeMeta(t *testing.T) {
	c := mustNew(t, &appsv1.Deployment{})
	for _, tm := range []metav1.TypeMeta{
		{},
		{APIVersion: "apps/v1", Kind: "Deployment"},
		{APIVersion: "a/b/c", Kind: "Odd"},
		{Kind: "OnlyKind"},
	} {
		obj := &appsv1.Deployment{TypeMeta: tm}
		if got := roundTrip(t, c, obj).(*appsv1.Deployment).TypeMeta; got != tm {
			t.Errorf("TypeMeta %+v came back as %+v", tm, got)
		}
	}
}

func TestCodec_Encode_IgnoresMapOrder(t *testing.T) {
	for kind, obj := range examples() {
		c := mustNew(t, obj)
		want := mustEncode(t, c, obj)
		for range 20 {
			// A deep copy ranges over the maps in another order.
			if got := mustEncode(t, c, obj.DeepCopyObject()); !bytes.Equal(got, want) {
				t.Fatalf("%v: equal objects encode differently", kind)
			}
		}
	}
	pod := testPod()
	pod.Labels, pod.Annotations = map[string]string{}, map[string]string{}
	reversed := pod.DeepCopy()
	for i := range 50 {
		pod.Labels[string(rune('a'+i))] = "x"
		reversed.Labels[string(rune('a'+49-i))] = "x"
	}
	c := mustNew(t, pod)
	if !bytes.Equal(mustEncode(t, c, pod), mustEncode(t, c, reversed)) {
		t.Error("the order of insertion shows in the record")
	}
}

func TestCodec_ConcurrentUse(t *testing.T) {
	for _, obj := range examples() {
		c := mustNew(t, obj)
		want := mustEncode(t, c, obj)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					record, err := c.Encode(obj)
					if err != nil || !bytes.Equal(record, want) {
						t.Errorf("Encode: %v, %d bytes", err, len(record))
					}
					if got, err := c.Decode(record); err != nil || !equality.Semantic.DeepEqual(got, obj) {
						t.Errorf("Decode: %v", err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// The record must not be moved by Seal: that would double the cost of Encode.
func TestCodec_Encode_FillsItsBuffer(t *testing.T) {
	for kind, obj := range examples() {
		if record := mustEncode(t, mustNew(t, obj), obj); len(record) != cap(record) {
			t.Errorf("%v: %d bytes in a buffer of %d", kind, len(record), cap(record))
		}
	}
}

func TestCodec_Encode_RefusesLossyRawExtension(t *testing.T) {
	c := mustNew(t, &appsv1.ControllerRevision{})
	obj := &appsv1.ControllerRevision{Data: runtime.RawExtension{Object: testPod()}}
	if _, err := c.Encode(obj); !errors.Is(err, ErrUnencodable) {
		t.Errorf("an object that protobuf drops was encoded: %v", err)
	}
	obj.Data = runtime.RawExtension{Raw: []byte(`{"a": 1}`)}
	if got := roundTrip(t, c, obj); !reflect.DeepEqual(got, obj) {
		t.Errorf("got %+v, want %+v", got, obj)
	}
	if mustNew(t, &corev1.Pod{}).payload.(protobufPayload).raw != nil {
		t.Error("pods are searched for RawExtensions, but have none")
	}
}
