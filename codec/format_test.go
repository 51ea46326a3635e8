package codec

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The layout is a promise to files that exist: these records were written by
// format 1 and must stay readable, and be written the same. A change needs a new
// format version, not new records here.
func TestRecord_Format1IsStable(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"b": "2", "a": "1"},
		CreationTimestamp: metav1.Time{Time: time.Unix(1700000000, 0)},
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}},
	}
	for _, test := range []struct {
		obj    runtime.Object
		golden string
	}{
		{&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v"}}, "\xc4\x19\x99\x01\x01\x00\xc4\x04\x12\xc3^\x00\xa0\xa0\xa17\xa1u\x82\xa1a\xa11\xa1b\xa12\n?\n\x01n\x12\x00\x1a\x00\"\x00*\x01u2\x0178\x00B\b\b\x80\xe2Ϫ\x06\x10\x00Z\x06\n\x01a\x12\x011Z\x06\n\x01b\x12\x012\x8a\x01\x11\n\x01m\x12\x00\x1a\x002\x00:\x04\n\x02{}B\x00\x12\x06\n\x01k\x12\x01vؼ\x10\xda"},
		{&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"uid": "u", "labels": map[string]any{"b": "2", "a": "1"}},
			"n": []any{int64(1), int64(-200), 1.0, true, nil},
		}}, "\xc4\x1b\x99\x01\x02\x00\xc4\x04\xe6\xca\f\xea\xa2v1\xa1X\xa0\xa1u\x82\xa1a\xa11\xa1b\xa12\x84\xaaapiVersion\xa2v1\xa4kind\xa1X\xa8metadata\x82\xa6labels\x82\xa1a\xa11\xa1b\xa12\xa3uid\xa1u\xa1n\x95\x01\xd1\xff8\xcb?\xf0\x00\x00\x00\x00\x00\x00\xc3\xc0\x12a\xd7U"},
		{&metav1.PartialObjectMetadata{ObjectMeta: meta}, "\xc4\x19\x99\x01\x03\x00\xc4\x04z\xd2h>\xa0\xa0\xa17\xa1u\x82\xa1a\xa11\xa1b\xa12\x82\xa6Object\xde\x00\x11\xa4Kind\xa0\xaaAPIVersion\xa0\xa4Name\xa1n\xacGenerateName\xa0\xa9Namespace\xa0\xa8SelfLink\xa0\xa3UID\xa1u\xafResourceVersion\xa17\xaaGeneration\xd3\x00\x00\x00\x00\x00\x00\x00\x00\xb1CreationTimestamp\xc4\x0f\x01\x00\x00\x00\x0e\xdc\xe5\xe8\x00\x00\x00\x00\x00\xff\xff\xb1DeletionTimestamp\xc0\xbaDeletionGracePeriodSeconds\xc0\xa6Labels\x82\xa1a\xa11\xa1b\xa12\xabAnnotations\xc0\xafOwnerReferences\xc0\xaaFinalizers\xc0\xadManagedFields\xc0\xadManagedFields\x91\x83\xa5Entry\x87\xa7Manager\xa1m\xa9Operation\xa0\xaaAPIVersion\xa0\xa4Time\xc0\xaaFieldsType\xa0\xa8FieldsV1\xc0\xabSubresource\xa0\xa9HasFieldsæFields\xc4\x02{}w\x8e\x8a\x0e"},
		{&bomb{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Fuse: "wet"}, "\xc4\x10\x99\x01\x04\x00\xc4\x04>\xb4\xf4\"\xa0\xa0\xa0\xa1u\x80{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"fuse\":\"wet\"}64m\x98"},
	} {
		c := mustNew(t, test.obj)
		if got := mustEncode(t, c, test.obj); string(got) != test.golden {
			t.Errorf("%T is written differently:\n got %q\nwant %q", test.obj, got, test.golden)
		}
		if got, err := c.Decode([]byte(test.golden)); err != nil || !reflect.DeepEqual(got, test.obj) {
			t.Errorf("%T is read differently: %v\n%s", test.obj, err, diff(test.obj, got))
		}
	}
}
