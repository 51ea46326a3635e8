package indexer

import (
	"errors"
	"fmt"
)

// Residency says where the objects of an indexer are.
type Residency int

const (
	// Memory keeps all objects decoded in memory, as client-go does, and writes them
	// to the collection behind. It is the default.
	Memory Residency = iota
	// Disk keeps the objects in the collection only, with a bounded cache of decoded
	// ones in front. Memory depends on the budget of the cache and not on the number
	// of objects.
	Disk
)

// String returns the name of the residency.
func (r Residency) String() string {
	switch r {
	case Memory:
		return "Memory"
	case Disk:
		return "Disk"
	}
	return fmt.Sprintf("Residency(%d)", int(r))
}

const (
	// DefaultMemoryBudget is what the cache of an indexer in disk residency may take.
	DefaultMemoryBudget = 32 << 20
	// MinMemoryBudget is the least budget: less than one object may have, so that
	// hardly anything would be kept.
	MinMemoryBudget = 1 << 20
)

// ValidateResidency reports a residency or a memory budget, in bytes, that cannot be
// meant. A budget of 0 is the default.
func ValidateResidency(r Residency, budget int64) error {
	switch {
	case r != Memory && r != Disk:
		return fmt.Errorf("there is no %v; use Memory or Disk", r)
	case r == Memory && budget != 0:
		return errors.New("a memory budget is for disk residency only; give 0 with Memory")
	case budget < 0:
		return fmt.Errorf("the memory budget %d is negative; 0 is the default", budget)
	case budget != 0 && budget < MinMemoryBudget:
		return fmt.Errorf("the memory budget of %d bytes is less than one object may need; give at least %d, or 0 for the default", budget, MinMemoryBudget)
	}
	return nil
}
