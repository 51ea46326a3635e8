package store

import (
	"fmt"
	"maps"
	"time"
)

// Limits of what a Batch may hold, in bytes. They leave room for an index entry
// (value and key, escaped) in a key of the bbolt engine, which ends at 32 KiB.
const (
	// MaxKeyLength limits object keys, UIDs and names of indices.
	MaxKeyLength = 4 << 10
	// MaxIndexValueLength limits the values of an index.
	MaxIndexValueLength = 12 << 10
	// MaxIdentityLength limits Identity.String.
	MaxIdentityLength = 16 << 10
)

// Limits of a DepartedOp.
const (
	MaxAttempts = 1<<8 - 1
	MaxAge      = (1<<24 - 1) * time.Second
)

// Validate reports the first thing in b that no engine can store, as an error
// wrapping ErrInvalidBatch. Apply calls it before anything becomes visible.
func (b *Batch) Validate() error {
	for i := range b.Ops {
		if err := b.Ops[i].validate(); err != nil {
			return err
		}
	}
	for i := range b.Index {
		if err := b.Index[i].validate(); err != nil {
			return err
		}
	}
	for _, name := range b.DropIndices {
		if err := checkName("name of an index", name); err != nil {
			return err
		}
	}
	for _, d := range b.Departed {
		if d.Attempts < 0 || d.Attempts > MaxAttempts || d.Age < 0 || d.Age > MaxAge {
			return fmt.Errorf("%w: departed record %q has %d attempts and an age of %s", ErrInvalidBatch, d.Key, d.Attempts, d.Age)
		}
	}
	return nil
}

func (op *Op) validate() error {
	if err := checkName("key", op.Key); err != nil {
		return err
	}
	if op.Value != nil && len(op.Value) < checksumSize {
		return fmt.Errorf("%w: the record of %q is not sealed", ErrInvalidBatch, op.Key)
	}
	if len(op.Depart) > MaxKeyLength {
		return fmt.Errorf("%w: UID of %q has %d bytes, the limit is %d", ErrInvalidBatch, op.Key, len(op.Depart), MaxKeyLength)
	}
	return validateChanges(op.Index)
}

func (op *IndexOp) validate() error {
	if err := checkName("key", op.Key); err != nil {
		return err
	}
	return validateChanges(op.Changes)
}

func validateChanges(changes []IndexChange) error {
	for i := range changes {
		if err := changes[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (c *IndexChange) validate() error {
	if err := checkName("name of an index", c.Name); err != nil {
		return err
	}
	// A value to remove that is too long was never added.
	for _, value := range c.Add {
		if len(value) > MaxIndexValueLength {
			return fmt.Errorf("%w: a value of index %q has %d bytes, the limit is %d",
				ErrInvalidBatch, c.Name, len(value), MaxIndexValueLength)
		}
	}
	return nil
}

func checkName(what, s string) error {
	if s == "" {
		return fmt.Errorf("%w: %s is empty", ErrInvalidBatch, what)
	}
	if len(s) > MaxKeyLength {
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrInvalidBatch, what, len(s), MaxKeyLength)
	}
	return nil
}

// Clone returns a copy of h that shares nothing with it, in the form in which
// every engine hands it out: an empty Indices is nil, Contact is in UTC and has
// no monotonic reading.
func (h Header) Clone() Header {
	if len(h.Indices) == 0 {
		h.Indices = nil
	}
	h.Indices = maps.Clone(h.Indices)
	if !h.Contact.IsZero() {
		h.Contact = h.Contact.Round(0).UTC()
	} else {
		h.Contact = time.Time{}
	}
	return h
}
