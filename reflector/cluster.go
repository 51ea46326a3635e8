package reflector

import (
	"context"
	"slices"
	"strings"
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
	stored := r.origin.Cluster
	keys, byKeys := strings.CutPrefix(cluster, IssuerKeys)
	storedKeys, storedByKeys := strings.CutPrefix(stored, IssuerKeys)
	switch {
	case cluster == "" || stored == "" || byKeys != storedByKeys:
		return false, nil
	case !byKeys:
		return cluster != stored, nil
	case haveCommon(strings.Split(keys, ","), strings.Split(storedKeys, ",")):
		return false, nil
	}
	_, err := r.probeNewest(ctx)
	return err == nil && !r.run.newest.present, err
}

func haveCommon(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
