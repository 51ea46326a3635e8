// Package servers holds the commands that are the real etcd and kube-apiserver.
//
// They are a module of their own for two reasons. They are built with exactly
// the dependency versions of the Kubernetes release they represent, which the
// library's newer requirements would bend. And a change of the library's
// dependencies does not cost the ten minutes that building them takes.
package servers
