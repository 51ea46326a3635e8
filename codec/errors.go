package codec

import "errors"

var (
	// ErrUnsupportedType means that no payload can hold objects of this Go type.
	// Use a pointer to an API struct, *unstructured.Unstructured or
	// *metav1.PartialObjectMetadata.
	ErrUnsupportedType = errors.New("unsupported object type")

	// ErrWrongType means that an object is not of the Go type that the Codec
	// was made for. The wrapping error names both.
	ErrWrongType = errors.New("object has the wrong type")

	// ErrUnencodable means that an object holds something that its payload
	// would not give back, or that its own marshal code failed or panicked.
	// The object came from a transform or from code; the API server cannot
	// deliver it.
	ErrUnencodable = errors.New("object cannot be encoded")
)
