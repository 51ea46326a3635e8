package codec

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/warmcache/warmcache/store"
)

func TestCheckMsgpack(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want error
	}{
		"map":                    {"\x82\xa1a\x01\xa1b\x92\xc0\xc3", nil},
		"long string":            {"\xd9\x02ab", nil},
		"empty input":            {"", errMalformed},
		"two values":             {"\xc0\xc0", errMalformed},
		"map lacks a value":      {"\x82\xa1a\x01\xa1b", errMalformed},
		"string is cut":          {"\xa3ab", errMalformed},
		"length is cut":          {"\xdb\x00\x00", errMalformed},
		"number is cut":          {"\xcb\x00\x00", errMalformed},
		"four billion pairs":     {"\xdf\xff\xff\xff\xff\xa1a\x01", errMalformed},
		"four billion elements":  {"\xdd\xff\xff\xff\xff\x01", errMalformed},
		"four billion bytes":     {"\xc6\xff\xff\xff\xffab", errMalformed},
		"extension":              {"\xd6\xff\x00\x00\x00\x00", errMalformed},
		"unsigned integer":       {"\xcc\xff", errMalformed},
		"float32":                {"\xca\x00\x00\x00\x00", errMalformed},
		"reserved code":          {"\xc1", errMalformed},
		"nested as deep as JSON": {strings.Repeat("\x91", maxDepth) + "\xc0", nil},
		"nested deeper":          {strings.Repeat("\x91", maxDepth+1) + "\xc0", errTooDeep},
		"nested without end":     {strings.Repeat("\x91", 1<<20), errTooDeep},
	} {
		if got := checkMsgpack([]byte(test.data)); !errors.Is(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// The library allocates what a length asks for. These lengths lie, and the
// records are sealed, so nothing but the check protects from them.
func TestCodec_Decode_DoesNotTrustLengths(t *testing.T) {
	for _, example := range []runtime.Object{&unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}} {
		c := mustNew(t, example)
		for _, lie := range []string{"\xdf\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff"} {
			record := underEnvelope(c, []byte(lie))
			if _, err := c.Decode(record); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%T: %v", example, err)
			}
		}
	}
}
