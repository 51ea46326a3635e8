// Package fifo is the delta queue between a reflector, which reads changes from
// the API server, and the consumer that applies them to a store.
//
// Promises:
//
//   - Order. Deltas come out in the order in which they went in, so the deltas
//     of one object are in order, and so are resourceVersions: once a batch is
//     applied, everything up to Batch.RV is. That is what makes the version safe
//     to persist. (client-go's RealFIFO works the same way; its older DeltaFIFO,
//     which groups by key, could not promise it.)
//   - One consumer. PopBatch is meant for a single goroutine. The queue is not
//     locked while the consumer works. Without Options.Limit the reflector is never
//     held up, and the queue is as long as the consumer is behind. With it, whoever
//     brings objects waits while as many of them do, up to one part of a list more;
//     Options.Bytes says the same of their size.
//   - A list reconciles. A Replacement becomes a set of deltas only when the
//     consumer reaches it, against the objects known at that time. Whatever was
//     queued before it has been applied by then, so an object that appeared and
//     vanished while the list was under way gets its delete
//     (kubernetes/kubernetes#115658). Objects whose stored record equals the
//     listed one yield nothing. Deletes come first, as in client-go.
//   - A streamed list (Options.Stream) is reconciled part by part while it is read,
//     in constant memory if it comes in the order of the keys, and with the same
//     result in any other. Its version comes, as always, with the last batch;
//     deletes come when the list has arrived whole, which is after all but the last
//     of its parts. A list that is aborted leaves what it has brought.
//   - Repetitions are dropped. An event that says of an object what the newest
//     queued delta of that object says already is not queued again. Only events
//     with the same type and resourceVersion count, and deletions, of which the
//     one that knows the final state is kept.
//   - A failure stops the version. After the consumer has failed, everything up
//     to the next Replacement is discarded and Failed delivers the error: a
//     relist is then the only way on (compare kubernetes/kubernetes#134928). A
//     consumer that has lost its objects says at which version (LostError), and
//     only a list that was asked for after that is taken.
package fifo
