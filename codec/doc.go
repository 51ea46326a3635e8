// Package codec turns API objects into records and back.
//
// A Codec serves the objects of one Go type, as one informer holds them. What a
// record restores is the object that the API client delivered, not merely one
// that is equal by the rules of the API: handlers compare objects, and a record
// must not be the reason why two of them differ.
//
// # Record
//
//	┌───────────────┬─────────────────────────────────────┬────────┐
//	│ bin(envelope) │ payload                             │ CRC32C │
//	└───────────────┴─────────────────────────────────────┴────────┘
//	envelope = msgpack [ format, payload kind, flags, type id,
//	                     apiVersion, kind, resourceVersion, uid, labels ]
//
// The envelope is a msgpack array inside a msgpack bin, so that a reader can
// step over what it does not need, labels above all, without parsing it. The
// type id is a hash of the name of the Go type: a record is never decoded into
// another type. apiVersion and kind are those of the Go object, usually empty
// for typed objects. The checksum is store.Seal's.
//
// # Payloads
//
// The payload is what was measured to be exact for the kind of object:
//
//   - PayloadProtobuf: types of client-go's scheme. An object that was delivered
//     as protobuf is restored identically; one that was delivered as JSON may
//     differ in nil versus empty, which apiequality.Semantic ignores.
//   - PayloadUnstructured: *unstructured.Unstructured, as msgpack. Identical.
//   - PayloadMetadata: *metav1.PartialObjectMetadata, as msgpack. Identical;
//     timestamps come back in time.Local, where every client puts them.
//   - PayloadJSON: every other Go type, typed custom resources above all. The
//     type's JSON methods decide; what survives a write to the API server
//     survives here, with the same exceptions: nil versus empty for omitempty
//     fields, spaces inside raw JSON, and an absent json.RawMessage that has no
//     omitempty, which becomes null.
//
// # Guarantees
//
//   - A Codec is immutable and safe for concurrent use.
//   - Encode is deterministic: equal objects have equal records, in every process
//     and in every time zone. A reconcile may compare records instead of objects.
//   - Decode never panics, whatever the bytes. It returns an object only if the
//     checksum holds and the record was written for this payload and Go type.
//   - Neither direction keeps its argument or shares memory with it.
//
// That a record was written by the same structure of the Go type (an older
// binary drops fields that it does not know) is not visible in the record. It is
// in Codec.Fingerprint, which belongs in the header of a collection.
package codec
