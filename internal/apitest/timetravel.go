package apitest

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourceVersion is that of the latest write to any resource.
func (s *Server) ResourceVersion() string {
	return strconv.FormatUint(s.storage.revision(), 10)
}

// Compact forgets the history: watches from a version before the present one,
// and lists at one, are answered with 410 Expired, as after a restart of
// kube-apiserver and a compaction of etcd. Running watches go on unless they
// are behind.
func (s *Server) Compact() { s.storage.forget() }

// EndWatches closes the streams of all watches, as a real server does when a
// watch cache starts anew.
func (s *Server) EndWatches() { s.storage.endWatches(nil) }

// FailWatches closes the streams of all watches after an ERROR event with the
// given HTTP status, such as 410 for a watch whose version has been compacted
// meanwhile.
func (s *Server) FailWatches(status int) {
	s.storage.endWatches(statusError(Fault{Status: status}, &request{verb: "watch"}))
}

// Snapshot is the state of a server at one moment.
type Snapshot struct {
	rv   uint64
	rows map[schema.GroupVersionResource][]*record
}

// ResourceVersion is the version that the snapshot was taken at.
func (s *Snapshot) ResourceVersion() string { return strconv.FormatUint(s.rv, 10) }

// Snapshot takes the state of all resources, for Restore. It copies no objects.
func (s *Server) Snapshot() *Snapshot { return s.storage.snapshot() }

// Restore puts all objects and the counter of resourceVersions back, as
// restoring a backup of etcd does without --bump-revision. The versions after
// it will be given out a second time. History is forgotten and all watches end.
func (s *Server) Restore(snap *Snapshot) { s.storage.restore(snap) }
