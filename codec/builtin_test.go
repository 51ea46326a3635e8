package codec

import (
	"bytes"
	"flag"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

var (
	seedFlag   = flag.Int64("seed", 0, "seed of the randomised tests; 0 picks one")
	roundsFlag = flag.Int("rounds", 5, "random objects per kind")
)

// testSeed returns the seed to use and logs how to repeat the run.
func testSeed(t *testing.T) int64 {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("repeat with -run '^%s$' -seed %d", t.Name(), seed)
	return seed
}

// apiFuzzer fills API objects with values that can have come from a server.
func apiFuzzer(seed int64) *randfill.Filler {
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{
			func(j *intstr.IntOrString, c randfill.Continue) {
				*j = intstr.FromInt32(c.Int31())
				if c.Bool() {
					*j = intstr.FromString(c.String(0))
				}
			},
			func(j *metav1.ManagedFieldsEntry, c randfill.Continue) {
				c.FillNoCustom(j)
				j.FieldsV1 = nil
				if c.Bool() {
					j.FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)
				}
			},
			func(q *resource.Quantity, c randfill.Continue) {
				formats := []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent}
				*q = *resource.NewMilliQuantity(c.Int63n(1e15), formats[c.Intn(len(formats))])
			},
		}
	})
	f := fuzzer.FuzzerFor(funcs, rand.NewSource(seed), scheme.Codecs)
	return f.NumElements(0, 3).NilChance(0.3).MaxDepth(20)
}

// builtinGVKs returns every external kind of client-go's scheme, in order.
func builtinGVKs() []schema.GroupVersionKind {
	var gvks []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			gvks = append(gvks, gvk)
		}
	}
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	return gvks
}

// deliverProtobuf returns obj as a client that speaks protobuf gets it.
func deliverProtobuf(t *testing.T, obj runtime.Object) runtime.Object {
	t.Helper()
	data, err := obj.(runtime.ProtobufMarshaller).(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		t.Fatalf("Marshal(%T): %v", obj, err)
	}
	delivered := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(protoMessage)
	if err := delivered.Unmarshal(data); err != nil {
		t.Fatalf("Unmarshal(%T): %v", obj, err)
	}
	return delivered
}

// deliverJSON returns obj as a client that speaks JSON gets it.
func deliverJSON(t *testing.T, obj runtime.Object) runtime.Object {
	t.Helper()
	data, err := kjson.Marshal(obj)
	if err != nil {
		t.Fatalf("Marshal(%T): %v", obj, err)
	}
	delivered := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if err := kjson.Unmarshal(data, delivered); err != nil {
		t.Fatalf("Unmarshal(%T): %v\n%s", obj, err, data)
	}
	return delivered
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
}

// withoutProtobuf are the types of the scheme that do not embed a TypeMeta. No
// informer holds them.
var withoutProtobuf = []string{"WatchEvent"}

func TestCodec_BuiltinKinds_RoundTrip(t *testing.T) {
	seed := testSeed(t)
	objects := 0
	for _, gvk := range builtinGVKs() {
		example, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		c := mustNew(t, example)
		if slices.Contains(withoutProtobuf, gvk.Kind) {
			if got := c.payload.kind(); got != PayloadJSON {
				t.Errorf("%v uses %v, expected json", gvk, got)
			}
			continue
		}
		if got := c.payload.kind(); got != PayloadProtobuf {
			t.Errorf("%v uses %v, expected protobuf", gvk, got)
			continue
		}
		f := apiFuzzer(seed)
		for i := range *roundsFlag {
			obj := c.newObject()
			f.Fill(obj)
			checkBuiltin(t, c, gvk, obj, i%2 == 0)
			objects += 2
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d objects", objects)
}

func checkBuiltin(t *testing.T, c *Codec, gvk schema.GroupVersionKind, obj runtime.Object, withTypeMeta bool) {
	t.Helper()
	delivered := deliverProtobuf(t, obj)
	if withTypeMeta {
		delivered.GetObjectKind().SetGroupVersionKind(gvk)
	}
	if got := roundTrip(t, c, delivered); !reflect.DeepEqual(got, delivered) {
		t.Errorf("%v delivered as protobuf: %s", gvk, diff(delivered, got))
	}
	delivered = deliverJSON(t, obj)
	if got := roundTrip(t, c, delivered); !equality.Semantic.DeepEqual(got, delivered) {
		t.Errorf("%v delivered as JSON: %s", gvk, diff(delivered, got))
	}
}

// Quantities carry a cached string, which reflect.DeepEqual sees.
func TestCodec_Quantities_RoundTrip(t *testing.T) {
	c := mustNew(t, &corev1.PersistentVolumeClaim{})
	for _, s := range []string{"0", "1", "100m", "1.5Gi", "0.5Gi", "1e3", "1E9", "123456789012345678", "12345678901234567890123", "-3Ki", "1n"} {
		pvc := &corev1.PersistentVolumeClaim{}
		pvc.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse(s)}
		delivered := deliverProtobuf(t, pvc)
		if got := roundTrip(t, c, delivered); !reflect.DeepEqual(got, delivered) {
			t.Errorf("%s: %s", s, diff(delivered, got))
		}
	}
}

func TestCodec_Metadata_RoundTrip(t *testing.T) {
	seed := testSeed(t)
	f := apiFuzzer(seed)
	c := mustNew(t, &metav1.PartialObjectMetadata{})
	for range *roundsFlag * 20 {
		obj := &metav1.PartialObjectMetadata{}
		f.Fill(obj)
		obj.TypeMeta = metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}
		// The fuzzer puts times where time.Parse does; clients put them here.
		obj.CreationTimestamp = metav1.Time{Time: obj.CreationTimestamp.Local()}
		obj.DeletionTimestamp = mapTime(obj.DeletionTimestamp, time.Time.Local)
		for form, delivered := range map[string]runtime.Object{
			"protobuf": deliverProtobuf(t, obj), "JSON": deliverJSON(t, obj), "itself": obj,
		} {
			if got := roundTrip(t, c, delivered); !reflect.DeepEqual(got, delivered) {
				t.Fatalf("delivered as %s: %s", form, diff(delivered, got))
			}
		}
	}
}

func TestCodec_Metadata_KeepsNilAndEmptyApart(t *testing.T) {
	for name, obj := range map[string]*metav1.PartialObjectMetadata{
		"zero": {},
		"empty": {ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{}, Annotations: map[string]string{}, Finalizers: []string{},
			OwnerReferences: []metav1.OwnerReference{}, ManagedFields: []metav1.ManagedFieldsEntry{},
			DeletionTimestamp: &metav1.Time{}, DeletionGracePeriodSeconds: new(int64),
		}},
		"fields": {ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "nil"},
			{FieldsV1: &metav1.FieldsV1{}},
			{FieldsV1: metav1.NewFieldsV1("")},
			{FieldsV1: metav1.NewFieldsV1("{}"), Time: &metav1.Time{Time: time.Unix(1, 0)}},
		}}},
	} {
		if got := roundTrip(t, mustNew(t, obj), obj); !reflect.DeepEqual(got, obj) {
			t.Errorf("%s: %s", name, diff(obj, got))
		}
	}
}

// timesOf returns the times in the metadata of a typed object.
func timesOf(obj runtime.Object) []metav1.Time {
	m, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil
	}
	times := []metav1.Time{m.GetObjectMeta().GetCreationTimestamp()}
	if deleted := m.GetObjectMeta().GetDeletionTimestamp(); deleted != nil {
		times = append(times, *deleted)
	}
	for _, entry := range m.GetObjectMeta().GetManagedFields() {
		times = append(times, *entry.Time)
	}
	return times
}

// A record that an informer wrote in one time zone must not look changed to a
// reconcile in another.
func TestCodec_Records_DoNotDependOnTimeZone(t *testing.T) {
	home := time.Local
	t.Cleanup(func() { time.Local = home })
	for kind, obj := range examples() {
		c := mustNew(t, obj)
		var records [2][]byte
		for i, zone := range []*time.Location{time.FixedZone("east", 7*3600), time.FixedZone("west", -5*3600)} {
			time.Local = zone
			local, err := c.Decode(mustEncode(t, c, obj))
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range timesOf(local) {
				if at.Location() != zone {
					t.Errorf("%v: time is in %v, clients deliver it in %v", kind, at.Location(), zone)
				}
			}
			records[i] = mustEncode(t, c, local)
		}
		if !bytes.Equal(records[0], records[1]) {
			t.Errorf("%v: records differ:\n%q\n%q", kind, records[0], records[1])
		}
	}
}
