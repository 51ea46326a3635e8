package codec

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// benchPod is a pod of the size that clusters have: about 4 KB of protobuf.
func benchPod() *corev1.Pod {
	pod := testPod()
	pod.Labels = map[string]string{
		"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-prod", "pod-template-hash": "5d4f8c7b9",
	}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9", UID: "ab12"}}
	for i := range 4 {
		now := metav1.Time{Time: time.Unix(1700000000, 0)}
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: fmt.Sprintf("manager-%d", i), Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Time: &now,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"ab12\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:env":{".":{}}}}}}`),
		})
	}
	pod.Spec.Containers = nil
	for i := range 3 {
		c := corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example.com/team/web:v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}, {Name: "token", MountPath: "/var/run/secrets"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: fmt.Sprintf("some value %d", j)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:0123456789abcdef0123456789abcdef", ContainerID: "containerd://0123456789abcdef",
		})
	}
	for _, kind := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: "True"})
	}
	return pod
}

// benchObjects has the pod in each of the forms of an informer.
func benchObjects(b *testing.B) map[string]runtime.Object {
	pod := benchPod()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		b.Fatal(err)
	}
	return map[string]runtime.Object{
		"protobuf":     pod,
		"unstructured": &unstructured.Unstructured{Object: content},
		"metadata":     &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta},
	}
}

func BenchmarkCodec_Decode(b *testing.B) {
	for name, obj := range benchObjects(b) {
		c := mustNew(b, obj)
		record := mustEncode(b, c, obj)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(record)))
			for b.Loop() {
				if _, err := c.Decode(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// sink keeps the compiler from putting what is decoded on the stack.
var sink runtime.Object

// BenchmarkCodec_Decode_AgainstProtobuf alternates with a bare Unmarshal of the
// same pod, so that a busy machine slows both, and reports the ratio of the
// times. The aim is 1.15.
func BenchmarkCodec_Decode_AgainstProtobuf(b *testing.B) {
	pod := benchPod()
	c := mustNew(b, pod)
	record := mustEncode(b, c, pod)
	data, err := pod.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	bare := func() error {
		pod := new(corev1.Pod)
		sink = pod
		return pod.Unmarshal(data)
	}
	ours := func() (err error) {
		sink, err = c.Decode(record)
		return err
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i, decode := range []func() error{bare, ours} {
			begin := time.Now()
			if err := decode(); err != nil {
				b.Fatal(err)
			}
			spent[i] += time.Since(begin)
		}
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-bare")
	b.ReportMetric(testing.AllocsPerRun(10, func() { _ = ours() })-testing.AllocsPerRun(10, func() { _ = bare() }), "more-allocs")
}

func BenchmarkCodec_Encode(b *testing.B) {
	for name, obj := range benchObjects(b) {
		c := mustNew(b, obj)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Encode(obj); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBareProtobuf_Encode(b *testing.B) {
	pod := benchPod()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pod.Marshal(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadEnvelope(b *testing.B) {
	pod := benchPod()
	record := mustEncode(b, mustNew(b, pod), pod)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadEnvelope(record); err != nil {
			b.Fatal(err)
		}
	}
}
