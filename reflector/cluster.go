package reflector

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

// IssuerKeys begins the identity of a cluster that is made of the names of the keys
// with which it signs tokens, in the form "keys:a,b". It is for those who may not read
// the UID of a namespace. Such identities differ if they have no key in common. That
// happens in one cluster, too, whose keys have all been replaced meanwhile, so that it
// only counts if the newest object that is known is not there either. Any other identity
// differs from all but itself; one of the former kind and one of the latter say nothing
// about each other.
const IssuerKeys = "keys:"

// isForeign reports whether the stored copy is of another cluster than the one that has
// answered. If that takes a question to the server, the error is the answer to it.
func (r *Reflector) isForeign(ctx context.Context, cluster string) (bool, error) {
	if !areDistinct(cluster, r.origin.Cluster) {
		return false, nil
	}
	if !strings.HasPrefix(cluster, IssuerKeys) {
		return true, nil
	}
	if _, err := r.probeNewest(ctx); err != nil {
		return false, err
	}
	if r.run.newest.presence == unknown {
		r.listNext("the cluster signs its tokens with other keys than before")
	}
	return r.run.newest.presence == absent, nil
}

// identifyAgain asks once more for the cluster before a list, if a watch was cut since the
// last answer: the address may lead to another one now. Its list is compared with what
// is known of the old one, like any list, because handlers know that. But what is stored
// from then on is of the new one.
func (r *Reflector) identifyAgain(ctx context.Context) error {
	if !r.run.unsure {
		return nil
	}
	cluster, err := r.ask(ctx, r.cluster)
	if err != nil {
		if probeErr := r.probe(ctx); probeErr != nil {
			return probeErr
		}
		if r.run.unanswered++; r.run.unanswered < maxUnanswered {
			return fmt.Errorf("asking for the cluster: %w", err)
		}
		klog.FromContext(ctx).Info("Warning: going on without knowing whether the cluster is the one it was",
			"type", r.description, "err", err)
	}
	r.run.unsure, r.run.unanswered = false, 0
	if before := r.Status().Cluster; areDistinct(cluster, before) {
		klog.FromContext(ctx).Info("Warning: the server is of another cluster than before",
			"type", r.description, "before", before, "cluster", cluster)
		r.run.listReason, r.run.forgotten = "the server is of another cluster than before", false
	}
	if cluster != "" {
		r.update(func(s *Status) { s.Cluster = cluster })
	}
	return nil
}

// areDistinct reports whether two identities are of different clusters, as far as they
// tell.
func areDistinct(a, b string) bool {
	aKeys, aByKeys := strings.CutPrefix(a, IssuerKeys)
	bKeys, bByKeys := strings.CutPrefix(b, IssuerKeys)
	switch {
	case a == "" || b == "" || aByKeys != bByKeys:
		return false
	case !aByKeys:
		return a != b
	}
	return !haveCommon(strings.Split(aKeys, ","), strings.Split(bKeys, ","))
}

func haveCommon(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
