// Package parts is the upgraded module.
package parts

// Part has gained a field.
type Part struct {
	Maker  string `json:"maker,omitempty"`
	Weight int64  `json:"weight,omitempty"`
}
