package informer

import "errors"

var (
	// ErrInvalidOptions is wrapped by the errors of New. They name the field.
	ErrInvalidOptions = errors.New("invalid informer options")

	// ErrPlaintextSecrets is in the Status of an informer of Secrets that was given
	// a store and is not persisted; see Options.PlaintextSecrets.
	ErrPlaintextSecrets = errors.New("secrets are not written in plaintext unless Options.PlaintextSecrets, or WithPlaintextSecrets of a factory, allows it")

	// The texts are client-go's: it exports no errors, so that callers can only
	// compare the text.
	errStarted = errors.New("informer has already started")
	errStopped = errors.New("it has stopped already")
)
