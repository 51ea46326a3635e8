//go:build !gained

package main

// Spec of the first version.
type Spec struct {
	Color string `json:"color,omitempty"`
}
