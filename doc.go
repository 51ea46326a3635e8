// Package warmcache is a Kubernetes informer cache that survives its process:
// see the packages below it.
package warmcache
