// Package factory makes informers that survive their process. It has a door for each
// way in which programs get informers:
//
//	what there is          door         what informers hold
//
//	kubernetes clientset   New          built-in types
//	dynamic client         NewDynamic   *unstructured.Unstructured of any resource
//	metadata client        NewMetadata  *metav1.PartialObjectMetadata of any resource
//	generated factory      Adopt        the types of its clientset, be it client-go's or not
//	controller-runtime     NewInformerFunc, Identify     what a manager watches, in any form
//
// New, NewDynamic and NewMetadata return what client-go's constructors return:
// informers.SharedInformerFactory, dynamicinformer.DynamicSharedInformerFactory and
// metadatainformer.SharedInformerFactory. Code written for these needs another
// constructor and nothing else:
//
//	db, err := bolt.Open(path, bolt.Options{})
//	...
//	f, err := factory.New(clientset, db)
//	...
//	pods := f.Core().V1().Pods()
//	f.StartWithContext(ctx)
//
// Adopt leaves a program the factory that it has, and registers persistent
// informers with it. NewInformerFunc makes the informers of a controller-runtime
// manager, which learn from the config that Identify returns what they list.
//
// # What a factory decides
//
//   - How a type is listed. Generated code hides it in functions that build
//     client-go's own informer; New and Adopt read it from the interface of the
//     clientset instead.
//   - Which collection of the file an informer owns: group, version, resource,
//     namespace, selectors and form (store.Identity). The same resource in two
//     forms, say typed and unstructured, is stored twice.
//   - Whether a type is persisted at all. Secrets are not, in no form, unless the
//     user says so with WithPlaintextSecrets. Why something runs in memory only
//     although a store was given, and nobody asked for that, is logged once, and is
//     in informer.Status (Durability.Err).
//   - Where the objects are: decoded in memory, as in client-go, or in the store, with
//     a cache of bounded size in front (WithResidency).
//   - Whether its informers are compared with the server from time to time (WithAudit).
//   - What all its informers want to know of the API server: which cluster it
//     is, and the schema of each group-version. It is asked once, not once per
//     informer.
//
// # What callers may rely on
//
// All methods are safe for concurrent use. One factory has one informer per Go
// type or resource; whoever asks first decides how it is built. Start returns at
// once, starts only informers that it has not started before, and may be called
// again after more of them were requested. Shutdown waits for every goroutine of
// the started informers; cancel their context before or meanwhile. Nothing here
// closes the store: close it after Shutdown.
//
// Two informers of one process must not have equal identities in one store, so
// use one factory per store, namespace, selection and form.
//
// # Where it differs from client-go
//
// Constructors return an error for options that cannot be meant. A tweak of the
// list options is part of what a collection means, and therefore must give the same
// result each time. One that changes more than selectors and the shape of the
// transfer turns persistence off (WithTweakListOptions).
package factory
