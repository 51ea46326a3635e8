package e2e

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Objects that arrive as JSON may differ from the same ones that arrive as
// protobuf in nil and empty fields, and stored ones come back as if they had
// arrived as protobuf. They are equal in the sense of Kubernetes, and make equal
// records.
func TestEncoding_Changed_ResumesAndWritesNothing(t *testing.T) {
	for _, first := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(first, func(t *testing.T) {
			second := runtime.ContentTypeProtobuf
			if first == second {
				second = runtime.ContentTypeJSON
			}
			changeEncoding(t, first, second)
		})
	}
}

func changeEncoding(t *testing.T, first, second string) {
	const objects = 300
	s := newSubject(t, pods, configMaps)
	s.createSized(3000, "", names("object", objects)...)
	s.createNilAndEmpty()

	s.config.ContentType = first
	c := s.start()
	delivered := c.waitSynced()
	c.wantCurrent(delivered)
	c.terminate()
	before, err := os.ReadFile(s.config.Path)
	if err != nil {
		t.Fatal(err)
	}

	s.config.ContentType = second
	c = s.start()
	restored := c.waitSynced()
	c.wantCurrent(restored)
	c.wantLists(0)
	c.wantDelivered(counts{Adds: objects + 1, InitialAdds: objects + 1})
	c.terminate()
	logExact(t, delivered, restored, first+" as delivered, and as restored")

	// A list by the second client brings every object again.
	forgetHistory(t)
	c = s.start()
	relisted := c.waitSynced()
	c.wantCurrent(relisted)
	c.wantLists(1)
	c.wantDelivered(counts{Adds: objects + 1, InitialAdds: objects + 1})
	c.terminate()
	logExact(t, restored, relisted, first+" as restored, and "+second+" as listed")
	changed := changedBlocks(t, before, s.config.Path)
	t.Logf("%d of %d blocks changed", changed, len(before)/blockSize)
	if changed > objects/5 {
		t.Errorf("%d blocks of the file changed, although no object did", changed)
	}
}

// createNilAndEmpty creates a pod and a configmap with fields that are empty, and
// not absent, in JSON.
func (s *subject) createNilAndEmpty() {
	s.t.Helper()
	ctx := s.t.Context()
	metadata := metav1.ObjectMeta{Name: "empty", Namespace: s.namespace, Labels: map[string]string{"a": ""}}
	pod := &corev1.Pod{ObjectMeta: metadata, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "container", Image: "image", Command: []string{}}},
		Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{}},
			EmptyDir:  nil,
		}}},
	}}
	pod.Spec.Volumes[0].ConfigMap.Name = "empty"
	if _, err := s.writer.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metadata, Data: map[string]string{"empty": ""}, BinaryData: map[string][]byte{"empty": {}},
	}
	if _, err := s.writer.CoreV1().ConfigMaps(s.namespace).Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// logExact logs how many objects differ in nil and empty fields.
func logExact(t *testing.T, a, b *snapshot, what string) {
	t.Helper()
	for resource, contents := range a.Informers {
		n := 0
		for key, object := range contents.Objects {
			if object.Exact != b.Informers[resource].Objects[key].Exact {
				n++
			}
		}
		t.Logf("%s: %d of %d %s differ in nil and empty fields", what, n, len(contents.Objects), resource)
	}
}
