package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/warmcache/warmcache/store"
)

// gadget is a typed custom resource with every kind of field that has surprised
// a serialiser.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   gadgetSpec    `json:"spec"`
	Status *gadgetStatus `json:"status,omitempty"`
}

type gadgetSpec struct {
	gadgetCommon `json:",inline"`
	Exported     `json:"exported"`

	Values   gadgetValues         `json:"values"`
	Pointers gadgetPointers       `json:"pointers"`
	List     []gadgetValues       `json:"list,omitempty"`
	ByName   map[string]jsonValue `json:"byName,omitempty"`
	Limits   corev1.ResourceList  `json:"limits,omitempty"`
	Open     any                  `json:"open,omitempty"`
	Parent   *gadgetSpec          `json:"parent,omitempty"`
}

type gadgetCommon struct {
	Name  string  `json:"name"`
	Ratio float64 `json:"ratio"`
	Big   int64   `json:"big"`
	Flag  *bool   `json:"flag,omitempty"`
	Bytes []byte  `json:"bytes,omitempty"`
}

// Exported is embedded under a name.
type Exported struct {
	Class string `json:"class,omitempty"`
}

type gadgetValues struct {
	Quantity  resource.Quantity    `json:"quantity"`
	Port      intstr.IntOrString   `json:"port"`
	Extension runtime.RawExtension `json:"extension"`
	Time      metav1.Time          `json:"time"`
	Micro     metav1.MicroTime     `json:"micro"`
	Duration  metav1.Duration      `json:"duration"`
	Fields    metav1.FieldsV1      `json:"fields"`
	Raw       json.RawMessage      `json:"raw"`
}

type gadgetPointers struct {
	Quantity  *resource.Quantity    `json:"quantity,omitempty"`
	Port      *intstr.IntOrString   `json:"port,omitempty"`
	Extension *runtime.RawExtension `json:"extension,omitempty"`
	Time      *metav1.Time          `json:"time,omitempty"`
	Micro     *metav1.MicroTime     `json:"micro,omitempty"`
	Duration  *metav1.Duration      `json:"duration,omitempty"`
	Fields    *metav1.FieldsV1      `json:"fields,omitempty"`
	Raw       *json.RawMessage      `json:"raw,omitempty"`
	JSON      *jsonValue            `json:"json,omitempty"`
}

type gadgetStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// jsonValue holds any JSON, like apiextensions' type of that name.
type jsonValue struct{ Raw []byte }

func (v jsonValue) MarshalJSON() ([]byte, error) {
	if len(v.Raw) == 0 {
		return []byte("null"), nil
	}
	return v.Raw, nil
}

func (v *jsonValue) UnmarshalJSON(data []byte) error {
	if string(data) != "null" {
		v.Raw = append(v.Raw[:0], data...)
	}
	return nil
}

// DeepCopyObject is shallow: nothing in these tests changes a gadget in place.
func (g *gadget) DeepCopyObject() runtime.Object { out := *g; return &out }

// testGadget returns a gadget as a client delivers it: decoded from JSON.
func testGadget() *gadget {
	const values = `{"quantity":"1500m","port":"http","extension":{"b":1.0,"a":[null,"<&>"]},
		"time":"2026-01-02T03:04:05Z","micro":"2026-01-02T03:04:05.678901Z","duration":"1h5m0s",
		"fields":{"f:metadata":{"f:labels":{".":{}}}},"raw":{"x":[1,2.50,"\u003c"]}}`
	data := `{"apiVersion":"example.com/v1","kind":"Gadget",
		"metadata":{"name":"g","namespace":"prod","uid":"0d9f","resourceVersion":"4711",
			"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","tier":"front"},
			"managedFields":[{"manager":"m","operation":"Apply","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},
		"spec":{"name":"größe 🙂","ratio":0.1,"big":9007199254740993,"flag":false,"bytes":"AAH/",
			"exported":{"class":"gold"},
			"values":` + values + `,
			"pointers":{"quantity":"2Gi","port":8080,"extension":{"kind":"X"},"time":"2026-01-02T03:04:05Z",
				"micro":"2026-01-02T03:04:05.000001Z","duration":"1ns","fields":{"f:x":{}},"raw":[true],"json":"text"},
			"list":[` + values + `],
			"byName":{"z.dotted/key":{"deep":[[{}]]},"a":12345678901234567890},
			"limits":{"cpu":"100m","memory":"0.5Gi"},
			"open":{"int":9007199254740993,"list":[1,"x",null]},
			"parent":{"name":"inner","ratio":1,"big":-1,"values":` + values + `,"exported":{},"pointers":{}}},
		"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"r","message":""}]}}`
	return fromJSON(data)
}

// fromJSON decodes as a typed client does. Servers write compact JSON.
func fromJSON(data string) *gadget {
	var compact bytes.Buffer
	g := &gadget{}
	if err := errors.Join(json.Compact(&compact, []byte(data)), kjson.Unmarshal(compact.Bytes(), g)); err != nil {
		panic(err)
	}
	return g
}

func TestCodec_TypedCustomResource_RoundTrips(t *testing.T) {
	c := mustNew(t, &gadget{})
	for name, obj := range map[string]*gadget{
		"full":  testGadget(),
		"empty": fromJSON(`{"spec":{"values":{"raw":""},"pointers":{}}}`),
		"nulls": fromJSON(`{"spec":{"values":{"extension":null,"time":null,"fields":null,"raw":null},"list":null,"byName":{"a":null},"open":null}}`),
	} {
		got := roundTrip(t, c, obj)
		if !equality.Semantic.DeepEqual(got, obj) {
			t.Errorf("%s: %s", name, cmp.Diff(obj, got, cmp.Exporter(func(reflect.Type) bool { return true })))
		}
	}
}

// Each field is checked by itself, so that Semantic.DeepEqual cannot hide a
// loss: this is what reflection-based codecs drop without an error.
func TestCodec_TypedCustomResource_KeepsEveryField(t *testing.T) {
	obj := testGadget()
	got := roundTrip(t, mustNew(t, obj), obj).(*gadget)
	v, p := got.Spec.Values, got.Spec.Pointers
	micro := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for name, check := range map[string]struct{ got, want any }{
		"quantity":          {v.Quantity.MilliValue(), int64(1500)},
		"port":              {v.Port.StrVal, "http"},
		"extension":         {string(v.Extension.Raw), `{"b":1.0,"a":[null,"<&>"]}`},
		"time":              {v.Time.Unix(), micro.Unix()},
		"micro":             {v.Micro.UnixMicro(), micro.UnixMicro()},
		"duration":          {v.Duration.Duration, 65 * time.Minute},
		"fields":            {v.Fields.GetRawString(), `{"f:metadata":{"f:labels":{".":{}}}}`},
		"raw":               {string(v.Raw), `{"x":[1,2.50,"\u003c"]}`},
		"pointer quantity":  {p.Quantity.Value(), int64(2 << 30)},
		"pointer port":      {p.Port.IntVal, int32(8080)},
		"pointer extension": {string(p.Extension.Raw), `{"kind":"X"}`},
		"pointer micro":     {p.Micro.Nanosecond(), 1000},
		"pointer duration":  {p.Duration.Duration, time.Nanosecond},
		"pointer fields":    {p.Fields.GetRawString(), `{"f:x":{}}`},
		"pointer raw":       {string(*p.Raw), `[true]`},
		"pointer json":      {string(p.JSON.Raw), `"text"`},
		"inlined":           {got.Spec.Big, int64(9007199254740993)},
		"bytes":             {string(got.Spec.Bytes), "\x00\x01\xff"},
		"embedded":          {got.Spec.Class, "gold"},
		"map of JSON":       {string(got.Spec.ByName["z.dotted/key"].Raw), `{"deep":[[{}]]}`},
		"open integer":      {got.Spec.Open.(map[string]any)["int"], int64(9007199254740993)},
		"recursive":         {got.Spec.Parent.Big, int64(-1)},
		"managed fields":    {got.ManagedFields[0].FieldsV1.GetRawString(), `{"f:spec":{}}`},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %v, want %v", name, check.got, check.want)
		}
	}
}

// bomb is a type whose marshal code cannot cope with its own content.
type bomb struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Fuse              fuse `json:"fuse"`
}

type fuse string

func (f fuse) MarshalJSON() ([]byte, error) {
	if f == "lit" {
		panic("boom")
	}
	return json.Marshal(string(f))
}

func (f *fuse) UnmarshalJSON(data []byte) error {
	if string(data) == `"buried"` {
		panic("boom")
	}
	*f = fuse(strings.Trim(string(data), `"`))
	return nil
}

func (b *bomb) DeepCopyObject() runtime.Object { out := *b; return &out }

func TestCodec_PanicsBecomeErrors(t *testing.T) {
	c := mustNew(t, &bomb{})
	if _, err := c.Encode(&bomb{Fuse: "lit"}); !errors.Is(err, ErrUnencodable) || !strings.Contains(err.Error(), "boom") {
		t.Errorf("Encode: %v", err)
	}
	record := mustEncode(t, c, &bomb{Fuse: "buried"})
	if _, err := c.Decode(record); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "boom") {
		t.Errorf("Decode: %v", err)
	}
	// The codec goes on working.
	if got := roundTrip(t, c, &bomb{Fuse: "wet"}).(*bomb); got.Fuse != "wet" {
		t.Errorf("got %q", got.Fuse)
	}
}

func TestCodec_Encode_ReportsMarshalErrors(t *testing.T) {
	obj := testGadget()
	obj.Spec.Values.Raw = json.RawMessage("{not json")
	if _, err := mustNew(t, obj).Encode(obj); !errors.Is(err, ErrUnencodable) {
		t.Errorf("got %v, want ErrUnencodable", err)
	}
}
