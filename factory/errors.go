package factory

import "errors"

// ErrUnknownResource means that the clientset does not say how to list a type:
// it has no accessor for it, or more than one. Use a factory for dynamic clients,
// or give InformerFor a function that builds the informer.
var ErrUnknownResource = errors.New("clientset has no unique accessor")
