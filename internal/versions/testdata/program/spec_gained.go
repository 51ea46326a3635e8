//go:build gained

package main

// Spec of the version that has gained a field.
type Spec struct {
	Color string `json:"color,omitempty"`
	Size  int64  `json:"size,omitempty"`
}
