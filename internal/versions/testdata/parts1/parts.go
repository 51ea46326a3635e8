// Package parts is a module that the program depends on.
package parts

// Part is of the first version.
type Part struct {
	Maker string `json:"maker,omitempty"`
}
