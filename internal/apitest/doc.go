// Package apitest is a Kubernetes API server inside the test process: objects in
// memory, served over HTTP to client-go's own clients, with a log of the
// requests and switches for faults.
//
//	srv, err := apitest.New(apitest.Options{})
//	defer srv.Close()
//	err = srv.Create(apitest.Pod("ns", "p", 1))          // without HTTP
//	clientset, err := kubernetes.NewForConfig(srv.RESTConfig())
//	...
//	srv.Compact()                                        // old versions expire
//	fault := srv.Inject(apitest.Fault{Verb: "list", Status: 429})
//	err = srv.Down()                                     // connections are cut
//	n := srv.Counts().FullLists                          // what a client did
//
// # What it is faithful in
//
// Lists, watches and resourceVersions behave as in kube-apiserver 1.37 over
// etcd. Package contract is the suite of tests that runs against both, and
// nothing is to be added here that is not in it or visible in the source of
// kube-apiserver. In particular:
//
//   - There is one counter of versions for all resources. A write that changes
//     nothing takes none.
//   - Each resource has a watch cache with a version of its own. It moves with
//     changes of the resource and with consistent reads of it, not with changes
//     of other resources. Bookmarks carry it, and lists at version 0 return it.
//   - A bookmark comes about once a minute and two seconds before the deadline
//     of the watch, if the cache has moved since the watch began. Changes that
//     were there before count as the beginning, even if a selector hides them.
//   - A version below the window is answered with 200 and an ERROR event of code
//     410. A version in the future is accepted, and silent.
//   - Lists are ordered by the bytes of namespace/name. Pages are pinned to the
//     version of the first one. A page says how many objects remain only if
//     nothing is selected.
//
// # Aggregated API servers
//
// kube-apiserver passes requests for some resources on to other servers, which
// differ from it in one thing or another. Options.Aggregated lets a resource be
// served like that. The differences are those that have been seen in public
// servers: versions that cannot be compared, are missing, or count the changes of
// one object; watches that replay nothing, have no bookmarks, or do not exist;
// lists without limits, order or selectors.
//
// # What it leaves out
//
// Validation, defaulting, admission, authentication, managedFields and
// server-side apply; graceful deletion and finalizers (a DELETE takes effect at
// once); tables, YAML, CBOR and compression of responses; the subresources other
// than status. PUT and PATCH of an object change its status, too. Versions of one
// kind (apps/v1, apps/v1beta1) are collections of their own. A watch cache is
// never behind etcd except as said above. Bookmarks come on time and once; a real
// server is up to a second early or late and may repeat the last one.
//
// # Concurrency and cost
//
// Everything is safe for concurrent use. Objects are kept encoded, as in etcd;
// lists and events in protobuf copy these bytes, the other forms are made once
// per version of an object and kept. Watches pull from a shared log, so that a
// slow one delays nobody and has its stream closed when it falls behind the
// window.
package apitest
