package codec

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// fromWire decodes as the dynamic client does.
func fromWire(t *testing.T, data string) *unstructured.Unstructured {
	t.Helper()
	obj, _, err := unstructured.UnstructuredJSONScheme.Decode([]byte(data), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%.200s", err, data)
	}
	return obj.(*unstructured.Unstructured)
}

func checkUnstructured(t *testing.T, name string, object map[string]any) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: object}
	got := roundTrip(t, mustNew(t, obj), obj)
	if !reflect.DeepEqual(got, obj) {
		t.Errorf("%s: %s", name, diff(obj, got))
	}
}

func TestCodec_Unstructured_RoundTrips(t *testing.T) {
	for name, spec := range map[string]string{
		"numbers":   `[0,1,-1,31,127,128,-32,-33,-128,-129,255,256,32767,32768,-32768,-32769,65535,65536,2147483647,2147483648,-2147483648,-2147483649,4294967296,9007199254740993,9223372036854775807,-9223372036854775808]`,
		"floats":    `[0.0,1.0,-1.5,1e3,1e300,5e-324,0.1,12345678901234567890,-0.0]`,
		"empties":   `{"map":{},"list":[],"string":"","null":null,"false":false,"zero":0}`,
		"unicode":   `{"größe":"🙂\u0000\u2028","日本":"<&>\"\\"}`,
		"odd keys":  `{"a.b/c":{"":{"k8s.io/x.y":1}},"~1":[[[]]],"true":true}`,
		"long":      `"` + strings.Repeat("x", 70000) + `"`,
		"wide":      `[` + strings.Repeat("1,", 70000) + `1]`,
		"str sizes": `["` + strings.Repeat("a", 31) + `","` + strings.Repeat("a", 32) + `","` + strings.Repeat("a", 255) + `","` + strings.Repeat("a", 256) + `"]`,
	} {
		obj := fromWire(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":`+spec+`}`)
		checkUnstructured(t, name, obj.Object)
	}
	checkUnstructured(t, "nil object", nil)
	checkUnstructured(t, "empty object", map[string]any{})
	checkUnstructured(t, "infinite", map[string]any{"up": math.Inf(1), "down": math.Inf(-1), "tiny": math.SmallestNonzeroFloat64})
	checkUnstructured(t, "invalid UTF-8", map[string]any{"a\xff": "\xfe"})
}

// Clients read up to 10,000 levels, so that must come back; what could not be
// read again must not be written.
func TestCodec_Unstructured_DeepNesting(t *testing.T) {
	nest := func(levels int) map[string]any {
		var value any = int64(1)
		for i := range levels - 1 {
			if i%2 == 0 {
				value = []any{value}
			} else {
				value = map[string]any{"k": value}
			}
		}
		return map[string]any{"root": value}
	}
	checkUnstructured(t, "deepest", nest(maxDepth))
	c := mustNew(t, &unstructured.Unstructured{})
	if _, err := c.Encode(&unstructured.Unstructured{Object: nest(maxDepth + 1)}); !errors.Is(err, ErrUnencodable) {
		t.Errorf("too deep: %.200v", err)
	}
}

func TestCodec_Unstructured_RefusesForeignValues(t *testing.T) {
	c := mustNew(t, &unstructured.Unstructured{})
	for _, value := range []any{int(1), int32(1), uint64(1), float32(1), []string{"a"}, map[string]string{}, []byte("a"), struct{}{}} {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": []any{nil, map[string]any{"field": value}}}}
		_, err := c.Encode(obj)
		if !errors.Is(err, ErrUnencodable) {
			t.Errorf("%T: got %v, want ErrUnencodable", value, err)
		}
		if want := fmt.Sprintf(`"spec": [1]: "field": unstructured objects cannot hold a %T`, value); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %s", err, want)
		}
	}
}

func TestCodec_Unstructured_RandomValues(t *testing.T) {
	seed := testSeed(t)
	rng := rand.New(rand.NewSource(seed))
	for range *roundsFlag * 100 {
		checkUnstructured(t, "random", randomMap(rng, 5))
		if t.Failed() {
			return
		}
	}
}

func randomMap(rng *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for range rng.Intn(6) {
		m[randomString(rng)] = randomValue(rng, depth)
	}
	return m
}

func randomValue(rng *rand.Rand, depth int) any {
	n := 9
	if depth == 0 {
		n = 7
	}
	switch rng.Intn(n) {
	case 0:
		return nil
	case 1:
		return rng.Intn(2) == 0
	case 2:
		return int64(rng.Uint64()) >> rng.Intn(64)
	case 3:
		return rng.NormFloat64() * math.Pow(10, float64(rng.Intn(40)-20))
	case 4:
		return float64(rng.Intn(5))
	case 5, 6:
		return randomString(rng)
	case 7:
		return randomMap(rng, depth-1)
	}
	s := make([]any, rng.Intn(5))
	for i := range s {
		s[i] = randomValue(rng, depth-1)
	}
	return s
}

func randomString(rng *rand.Rand) string {
	runes := []rune("abc.-/_~ äß日🙂\x00\"\\<&>")
	s := make([]rune, rng.Intn(40))
	for i := range s {
		s[i] = runes[rng.Intn(len(runes))]
	}
	return string(s)
}

// The same values that Unstructured accepts are those that it can deep-copy.
func TestCodec_Unstructured_AcceptsWhatDeepCopyAccepts(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 100 {
		m := randomMap(rng, 3)
		if !reflect.DeepEqual(runtime.DeepCopyJSON(m), m) {
			t.Fatal("the generator makes values that no client delivers")
		}
	}
}
