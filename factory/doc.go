// Package factory makes informers that survive their process for every built-in
// Kubernetes type. Factory implements client-go's informers.SharedInformerFactory,
// so that code written for client-go needs another constructor and nothing else:
//
//	db, err := bolt.Open(path, bolt.Options{})
//	...
//	f, err := factory.New(clientset, db)
//	...
//	pods := f.Core().V1().Pods()
//	f.StartWithContext(ctx)
//
// # What a factory decides
//
//   - How a type is listed. Generated code hides it in functions that build
//     client-go's own informer; the factory asks the clientset instead (see
//     resolve.go).
//   - Which collection of the file an informer owns: group, version, resource,
//     namespace and selectors (store.Identity).
//   - Whether a type is persisted at all. Secrets are not, unless the user says
//     so with WithPlaintextSecrets. Why something runs in memory only although a
//     store was given, and nobody asked for that, is logged once, and is in
//     informer.Status (Durability.Err).
//   - What all its informers want to know of the API server: which cluster it
//     is, and the schema of each group-version. It is asked once, not once per
//     informer.
//
// # What callers may rely on
//
// All methods are safe for concurrent use. One factory has one informer per Go
// type; whoever asks first decides how it is built. Start returns at once, starts
// only informers that it has not started before, and may be called again after
// more of them were requested. Shutdown waits for every goroutine of the started
// informers; cancel their context before or meanwhile. The factory does not close
// the store: close it after Shutdown.
//
// Two informers of one process must not have equal identities in one store, so
// use one factory per store, namespace and selection.
//
// # Where it differs from client-go
//
// A tweak of the list options is part of what a collection means, and therefore
// must give the same result each time. One that changes more than selectors and
// the shape of the transfer turns persistence off (WithTweakListOptions).
package factory
