package store

import (
	"errors"
	"strings"
	"testing"
)

func TestIdentity_String_IsReadBack(t *testing.T) {
	for _, id := range []Identity{
		{Version: "v1", Resource: "pods", Form: FormTyped},
		{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", Form: FormMetadata},
		{Version: "v1", Resource: "pods", LabelSelector: "app in (a,b),!x", FieldSelector: "spec.nodeName=n&1", Form: FormUnstructured},
	} {
		got, err := ParseIdentity(id.String())
		if err != nil || got != id {
			t.Errorf("ParseIdentity(%q) = %+v, %v; want %+v", id.String(), got, err, id)
		}
	}
}

// Every field tells two collections apart.
func TestIdentity_String_DiffersInEachField(t *testing.T) {
	full := Identity{"g", "v", "r", "n", "l", "f", FormTyped}
	seen := map[string]bool{full.String(): true}
	for _, other := range []Identity{
		{"", "v", "r", "n", "l", "f", FormTyped},
		{"g", "v2", "r", "n", "l", "f", FormTyped},
		{"g", "v", "r2", "n", "l", "f", FormTyped},
		{"g", "v", "r", "", "l", "f", FormTyped},
		{"g", "v", "r", "n", "f", "l", FormTyped},
		{"g", "v", "r", "n", "l", "", FormTyped},
		{"g", "v", "r", "n", "l", "f", FormMetadata},
	} {
		if seen[other.String()] {
			t.Errorf("%+v has the name of another identity: %s", other, other)
		}
		seen[other.String()] = true
	}
}

func TestParseIdentity_RefusesWhatStringDoesNotReturn(t *testing.T) {
	for _, s := range []string{
		"", "pods", "v1/pods", "v1/pods?form=typed&x=y", "v1/pods?form=other", "a/b/c/d?form=typed",
		"v1/?form=typed", "v1/pods?namespace=a&form=typed", "v1/pods?form=%zz",
	} {
		if id, err := ParseIdentity(s); !errors.Is(err, ErrInvalidIdentity) {
			t.Errorf("ParseIdentity(%q) = %+v, %v; want ErrInvalidIdentity", s, id, err)
		}
	}
}

func TestIdentity_Validate(t *testing.T) {
	for name, id := range map[string]Identity{
		"no version":     {Resource: "pods", Form: FormTyped},
		"no resource":    {Version: "v1", Form: FormTyped},
		"no form":        {Version: "v1", Resource: "pods"},
		"slash":          {Version: "v1", Resource: "pods/status", Form: FormTyped},
		"huge selectors": {Version: "v1", Resource: "pods", LabelSelector: strings.Repeat("x", MaxIdentityLength), Form: FormTyped},
	} {
		if err := id.Validate(); !errors.Is(err, ErrInvalidIdentity) {
			t.Errorf("%s: %v, want ErrInvalidIdentity", name, err)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("apps/v1/deployments?form=typed&namespace=web")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseIdentity(s); err == nil && id.String() != s {
			t.Errorf("ParseIdentity(%q) reads as %q", s, id)
		}
	})
}
