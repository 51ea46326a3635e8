package informer

import "errors"

var (
	// ErrInvalidOptions is wrapped by the errors of New. They name the field.
	ErrInvalidOptions = errors.New("invalid informer options")

	// ErrPlaintextSecrets is in the Status of an informer of Secrets that was given
	// a store and is not persisted; see Options.PlaintextSecrets.
	ErrPlaintextSecrets = errors.New("secrets are not written in plaintext unless Options.PlaintextSecrets, or WithPlaintextSecrets of a factory, allows it; WithoutPersistence says that this is known")

	// ErrMemoryOnly may be wrapped by the error of Options.Identify, for objects that
	// somebody who knows the identity does not want to be persisted. The informer
	// works in memory as if it had no store.
	ErrMemoryOnly = errors.New("kept in memory only, as wanted")

	// ErrUnconfirmed is wrapped by the errors of CheckConfirmed, Read and GetByKey. An
	// object that was not found may exist, and nothing may be deleted for its sake. It
	// passes when the server has been reached: see ConfirmedChecker.
	ErrUnconfirmed = errors.New("the state has not been confirmed by the server yet, and what is missing may exist; try again when the informer has reached the server")

	// The texts are client-go's: it exports no errors, so that callers can only
	// compare the text.
	errStarted = errors.New("informer has already started")
	errStopped = errors.New("it has stopped already")
)
