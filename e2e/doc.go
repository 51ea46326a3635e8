// Package e2e tests warmcache against a real kube-apiserver and etcd. Its tests
// share one control plane, which a test may restart as long as it leaves it
// running; each test has a namespace of its own.
//
// TestSoak takes two minutes; -soak and -soak.seed change that and repeat a run.
//
// What is about restarts runs informers in child processes (subject, child): the
// test binary, told by an environment variable not to test. A child says what its
// handlers and indexers see, and the test compares that with a fresh list of the
// server and counts the child's requests in the server's audit log. Programs with
// controller-runtime are tested alike (managers, managersRun).
package e2e
