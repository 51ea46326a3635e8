// Package controlplane runs a real Kubernetes control plane for tests: etcd and
// kube-apiserver, built from their Go modules, on loopback.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	defer cp.Stop()
//	client := kubernetes.NewForConfigOrDie(cp.API.Config())
//
// What it promises:
//
//   - Servers listen on 127.0.0.1 only, with credentials made for this one
//     control plane. Two of them, in one process or in several, never meet.
//   - A server can be stopped, killed and started again: it keeps its port, its
//     data and its credentials, so clients reconnect as they would to a real one.
//   - Stop ends exactly the processes that Start began. They also end when the
//     process that started them dies (on Linux; elsewhere they are left behind).
//   - Every request whose response a client has seen is in AuditEvents, because
//     the server writes a request down before it handles it.
//   - There is no controller manager, no scheduler and no kubelet: pods stay
//     Pending, a deleted namespace stays Terminating. Give each test a namespace
//     of its own.
//
// The first use on a machine builds the servers, about ten minutes on two cores.
// The binaries are kept under the user's cache directory and found again by a
// hash of their module files and the Go version. Binaries of other versions are
// left there; delete the directory to reclaim the space.
//
// All methods are safe for concurrent use.
package controlplane
