package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/informer"
)

// Objects that arrive as JSON may differ from the same ones that arrive as
// protobuf in nil and empty fields, and stored ones come back as if they had
// arrived as protobuf. This server keeps built-in types as protobuf itself, so that
// not even that differs. Either way, both make equal records.
func TestEncoding_Changed_ResumesAndWritesNothing(t *testing.T) {
	for _, change := range [][]string{
		{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf},
		{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON},
	} {
		t.Run(strings.ReplaceAll(strings.Join(change, " to "), "application/", ""), func(t *testing.T) {
			inEachResidency(t, func(t *testing.T, r informer.Residency) { changeEncoding(t, r, change[0], change[1]) })
		})
	}
}

func changeEncoding(t *testing.T, r informer.Residency, first, second string) {
	s := newSubject(t, pods, configMaps).residing(r)
	s.createSized(3000, "", names("object", largeSize)...)
	s.createNilAndEmpty()
	all := counts{Adds: largeSize + 1, InitialAdds: largeSize + 1}

	s.config.ContentType = first
	c := s.start()
	c.wantCurrent(c.waitSynced())
	c.terminate()
	before := s.readFile()

	s.config.ContentType = second
	c = s.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
	c.wantDelivered(all)
	c.terminate()

	// A list brings every object again.
	forgetHistory(t)
	c = s.start()
	c.wantCurrent(c.waitSynced())
	c.wantLists(1)
	c.wantDelivered(all)
	c.terminate()
	s.wantLittleWritten(before)
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
		ObjectMeta: metadata, Data: map[string]string{"text": ""}, BinaryData: map[string][]byte{"bytes": {}},
	}
	if _, err := s.writer.CoreV1().ConfigMaps(s.namespace).Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
