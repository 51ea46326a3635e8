package codec

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
)

// hashOfField returns the hash of a struct with fields next to a fixed one.
func hashOfField(fields ...reflect.StructField) string {
	fixed := reflect.StructField{Name: "Fixed", Type: reflect.TypeFor[string]()}
	return hashType(reflect.StructOf(append(fields, fixed)))
}

func TestHashType_SeesChangesOfStructure(t *testing.T) {
	field := func(typ reflect.Type, tag reflect.StructTag) reflect.StructField {
		return reflect.StructField{Name: "Field", Type: typ, Tag: tag}
	}
	str := reflect.TypeFor[string]()
	hashes := map[string]string{}
	for name, hash := range map[string]string{
		"without":        hashOfField(),
		"string":         hashOfField(field(str, `json:"a"`)),
		"other tag":      hashOfField(field(str, `json:"b"`)),
		"omitempty":      hashOfField(field(str, `json:"a,omitempty"`)),
		"other name":     hashOfField(reflect.StructField{Name: "Other", Type: str, Tag: `json:"a"`}),
		"int32":          hashOfField(field(reflect.TypeFor[int32](), `json:"a"`)),
		"int64":          hashOfField(field(reflect.TypeFor[int64](), `json:"a"`)),
		"named string":   hashOfField(field(reflect.TypeFor[metav1.ConditionStatus](), `json:"a"`)),
		"pointer":        hashOfField(field(reflect.TypeFor[*string](), `json:"a"`)),
		"slice":          hashOfField(field(reflect.TypeFor[[]string](), `json:"a"`)),
		"array of 2":     hashOfField(field(reflect.TypeFor[[2]string](), `json:"a"`)),
		"array of 3":     hashOfField(field(reflect.TypeFor[[3]string](), `json:"a"`)),
		"map by string":  hashOfField(field(reflect.TypeFor[map[string]string](), `json:"a"`)),
		"map by int":     hashOfField(field(reflect.TypeFor[map[int]string](), `json:"a"`)),
		"map of int":     hashOfField(field(reflect.TypeFor[map[string]int](), `json:"a"`)),
		"nested":         hashOfField(field(reflect.TypeFor[[]map[string]struct{ A string }](), `json:"a"`)),
		"nested changed": hashOfField(field(reflect.TypeFor[[]map[string]struct{ A int }](), `json:"a"`)),
		"embedded":       hashOfField(reflect.StructField{Name: "TypeMeta", Type: reflect.TypeFor[metav1.TypeMeta](), Anonymous: true}),
		"not embedded":   hashOfField(reflect.StructField{Name: "TypeMeta", Type: reflect.TypeFor[metav1.TypeMeta]()}),
	} {
		for other, known := range hashes {
			if known == hash {
				t.Errorf("%q and %q have the same hash", name, other)
			}
		}
		hashes[name] = hash
	}
}

// The text shows what the hash covers: custom marshalling (ab) and references
// to types that were spelled out before.
func TestDescribeType(t *testing.T) {
	const path = `"github.com/warmcache/warmcache/codec.`
	for typ, want := range map[reflect.Type]string{
		reflect.TypeFor[*jsonValue](): `ptr type ` + path + `jsonValue" ab struct {Raw false "" slice uint8 }`,
		reflect.TypeFor[mutual](): `type ` + path + `mutual"  struct {Back false "json:\"back\"" ptr ` +
			`type ` + path + `recursive"  struct {Self false "json:\"self\"" ptr #1;` +
			`Items false "json:\"items\"" slice #1;Props false "json:\"props\"" map string ptr #1;` +
			`Other false "json:\"other\"" #0;}}`,
	} {
		var got strings.Builder
		describeType(&got, typ)
		if got.String() != want {
			t.Errorf("%v:\n got %s\nwant %s", typ, got.String(), want)
		}
	}
}

type recursive struct {
	Self  *recursive            `json:"self"`
	Items []recursive           `json:"items"`
	Props map[string]*recursive `json:"props"`
	Other mutual                `json:"other"`
}

type mutual struct {
	Back *recursive `json:"back"`
}

type recursiveOther struct {
	Self  *recursiveOther `json:"self"`
	Items []mutual        `json:"items"`
}

func TestHashType_EndsOnRecursiveTypes(t *testing.T) {
	done := make(chan [3]string, 1)
	go func() {
		done <- [3]string{
			hashType(reflect.TypeFor[*recursive]()), hashType(reflect.TypeFor[*mutual]()), hashType(reflect.TypeFor[*recursiveOther]()),
		}
	}()
	select {
	case h := <-done:
		if h[0] == h[1] || h[1] == h[2] || h[0] == h[2] {
			t.Errorf("different types have the same hash: %v", h)
		}
	case <-time.After(time.Minute):
		t.Fatal("no end")
	}
}

// Fields inside time.Time and resource.Quantity are not what is stored.
func TestHashType_IgnoresUnexportedFields(t *testing.T) {
	with := reflect.TypeFor[struct {
		A string
		b int
	}]()
	if hashType(with) != hashType(reflect.TypeFor[struct{ A string }]()) {
		t.Error("an unexported field changes the hash")
	}
}

func TestCodec_Fingerprint_TellsTypesApart(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, gvk := range builtinGVKs() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		typ, print := reflect.TypeOf(obj), mustNew(t, obj).Fingerprint()
		if known, ok := seen[print]; ok && known != typ {
			t.Errorf("%v and %v have the fingerprint %s", typ, known, print)
		}
		seen[print] = typ
	}
}

// allFingerprints is what TestCodec_Fingerprint_IsStable compares.
func allFingerprints(t *testing.T) string {
	return strings.Join([]string{
		mustNew(t, &corev1.Pod{}).Fingerprint(),
		mustNew(t, &unstructured.Unstructured{}).Fingerprint(),
		mustNew(t, &metav1.PartialObjectMetadata{}).Fingerprint(),
		mustNew(t, &gadget{}).Fingerprint(),
	}, "\n")
}

const printFingerprints = "WARMCACHE_TEST_PRINT_FINGERPRINTS"

// Another process has other addresses and another map order.
func TestCodec_Fingerprint_IsStable(t *testing.T) {
	here := allFingerprints(t)
	if os.Getenv(printFingerprints) != "" {
		t.Logf("<%s>", here)
		return
	}
	if again := allFingerprints(t); again != here {
		t.Errorf("two calls differ:\n%s\n%s", here, again)
	}
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCodec_Fingerprint_IsStable$", "-test.v")
		cmd.Env = append(os.Environ(), printFingerprints+"=1")
		out, err := cmd.CombinedOutput()
		// t.Log indents the lines that follow the first.
		if text := strings.ReplaceAll(string(out), "        ", ""); err != nil || !strings.Contains(text, "<"+here+">") {
			t.Fatalf("another process: %v\n%s\nwant\n%s", err, text, here)
		}
	}
	for i, prefix := range []string{"protobuf/1/", "unstructured/1/", "metadata/1/", "json/1/"} {
		if line := strings.Split(here, "\n")[i]; !strings.HasPrefix(line, prefix) {
			t.Errorf("fingerprint %s does not begin with %s", line, prefix)
		}
	}
}
