// Package restmapper is a meta.RESTMapper that works while the API server is out
// of reach.
//
// Which kind belongs to which resource is what a server tells by discovery, and
// what controller-runtime asks for before it makes an informer: without an answer
// a manager that starts offline never gets to the informers that could start from
// the file. Provider remembers the last answer in the same file:
//
//	mgr, err := manager.New(factory.Identify(cfg), manager.Options{
//		MapperProvider: restmapper.Provider(db),
//		Cache:          cache.Options{NewInformer: newInformer},
//	})
//
// The server is asked first, and again for kinds that the last answer does not
// have, so that with a link a Mapper knows what the server knows. What is stored
// is used when the server does not answer within a few seconds, and only until it
// does.
package restmapper
