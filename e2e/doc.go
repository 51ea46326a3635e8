// Package e2e tests warmcache against a real kube-apiserver and etcd. Its tests
// share one control plane, which a test may restart as long as it leaves it
// running; each test has a namespace of its own.
package e2e
