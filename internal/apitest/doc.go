// Package apitest is a Kubernetes API server inside the test process: objects in
// memory, served over HTTP to client-go's own clients, with a log of the
// requests and switches for faults.
//
// It behaves as kube-apiserver 1.37 with etcd does, as far as lists, watches
// and resourceVersions go; package contract is the one suite of tests that runs
// against both.
package apitest
