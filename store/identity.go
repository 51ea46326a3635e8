package store

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Form tells how an informer holds its objects in memory. The same resource in
// two forms is two collections, because the stored payloads differ.
type Form string

const (
	// FormTyped is a Go struct registered in a scheme, such as *corev1.Pod.
	FormTyped Form = "typed"
	// FormUnstructured is *unstructured.Unstructured.
	FormUnstructured Form = "unstructured"
	// FormMetadata is *metav1.PartialObjectMetadata.
	FormMetadata Form = "metadata"
)

// Identity decides which collection an informer owns. Two informers with equal
// identities see the same objects; informers that differ in any field never
// share data.
type Identity struct {
	// Group, Version and Resource name what is listed; Group is empty for the
	// core group.
	Group, Version, Resource string
	// Namespace limits the collection to one namespace; empty means all.
	Namespace string
	// LabelSelector and FieldSelector are the selectors of the list request,
	// in the canonical form of labels.Selector and fields.Selector.
	LabelSelector, FieldSelector string
	// Form is how the objects are held.
	Form Form
}

// ErrInvalidIdentity is wrapped by Validate and ParseIdentity.
var ErrInvalidIdentity = errors.New("invalid informer identity")

// Validate reports what is missing, as an error wrapping ErrInvalidIdentity.
func (id Identity) Validate() error {
	switch {
	case id.Version == "" || id.Resource == "":
		return fmt.Errorf("%w: version and resource must be set", ErrInvalidIdentity)
	case strings.ContainsAny(id.Group+id.Version+id.Resource, "/?"):
		return fmt.Errorf("%w: group, version and resource must not contain / or ?", ErrInvalidIdentity)
	case !utf8.ValidString(id.Group + id.Version + id.Resource):
		return fmt.Errorf("%w: group, version and resource must be valid UTF-8", ErrInvalidIdentity)
	case len(id.String()) > MaxIdentityLength:
		return fmt.Errorf("%w: selectors are longer than %d bytes", ErrInvalidIdentity, MaxIdentityLength)
	}
	switch id.Form {
	case FormTyped, FormUnstructured, FormMetadata:
		return nil
	}
	return fmt.Errorf("%w: unknown form %q", ErrInvalidIdentity, id.Form)
}

// String returns the one spelling of the identity that is used on disk and in
// logs, for example "apps/v1/deployments?form=typed&namespace=web".
// ParseIdentity reads it back.
func (id Identity) String() string {
	query := url.Values{"form": {string(id.Form)}}
	for name, value := range map[string]string{
		"namespace":     id.Namespace,
		"labelSelector": id.LabelSelector,
		"fieldSelector": id.FieldSelector,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	path := id.Version + "/" + id.Resource
	if id.Group != "" {
		path = id.Group + "/" + path
	}
	return path + "?" + query.Encode()
}

// ParseIdentity is the inverse of Identity.String. It returns an error wrapping
// ErrInvalidIdentity for any other string.
func ParseIdentity(s string) (Identity, error) {
	path, rawQuery, _ := strings.Cut(s, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %q: %w", ErrInvalidIdentity, s, err)
	}
	id := Identity{
		Namespace:     query.Get("namespace"),
		LabelSelector: query.Get("labelSelector"),
		FieldSelector: query.Get("fieldSelector"),
		Form:          Form(query.Get("form")),
	}
	switch parts := strings.Split(path, "/"); len(parts) {
	case 2:
		id.Version, id.Resource = parts[0], parts[1]
	case 3:
		id.Group, id.Version, id.Resource = parts[0], parts[1], parts[2]
	default:
		return Identity{}, fmt.Errorf("%w: %q: want [group/]version/resource", ErrInvalidIdentity, s)
	}
	if err := id.Validate(); err != nil {
		return Identity{}, err
	}
	if id.String() != s {
		return Identity{}, fmt.Errorf("%w: %q is not in canonical form", ErrInvalidIdentity, s)
	}
	return id, nil
}
