package crashtest

import (
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/store"
)

// object is what tests need of an API object.
type object interface {
	runtime.Object
	metav1.Object
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
	leases     = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// kinds are the resources that change, with what makes an object of each.
var kinds = map[schema.GroupVersionResource]func() object{
	configMaps: func() object { return &corev1.ConfigMap{Data: map[string]string{"k": "v"}} },
	pods:       func() object { return apitest.Pod("", "", 1) },
	leases:     func() object { return &coordinationv1.Lease{} },
}

// What distinguishes versions of an object is kept in its metadata, which all
// kinds have.
const (
	tierLabel       = "tier"
	valueAnnotation = "value"
	// transformAnnotation is set by the transform of the informers.
	transformAnnotation = "transform"
)

// spec is one collection, the same in the parent and in the child.
type spec struct {
	name string
	gvr  schema.GroupVersionResource
	// namespace and tier, if not empty, limit what is selected.
	namespace, tier string
}

// specs share one file. Two of them see parts of what others see whole.
var specs = []spec{
	{name: "configmaps", gvr: configMaps},
	{name: "pods", gvr: pods},
	{name: "leases", gvr: leases},
	{name: "gold-configmaps", gvr: configMaps, tier: "gold"},
	{name: "gold-pods-in-b", gvr: pods, namespace: "b", tier: "gold"},
}

func (s spec) labelSelector() string {
	if s.tier == "" {
		return ""
	}
	return tierLabel + "=" + s.tier
}

func (s spec) identity() store.Identity {
	return store.Identity{
		Group: s.gvr.Group, Version: s.gvr.Version, Resource: s.gvr.Resource,
		Namespace: s.namespace, LabelSelector: s.labelSelector(), Form: store.FormTyped,
	}
}

// lists reports whether r reads the whole collection, in either form.
func (s spec) lists(r apitest.Request) bool {
	if r.Group != s.gvr.Group || r.Resource != s.gvr.Resource || r.Namespace != s.namespace ||
		r.Query.Get("labelSelector") != s.labelSelector() {
		return false
	}
	return r.Verb == "list" && r.Query.Get("limit") != "1" ||
		r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true"
}

// version is one state of one object, or its deletion.
type version struct {
	key, uid, tier, value string
	rv                    uint64
	deleted               bool
}

func versionOf(obj metav1.Object) version {
	rv, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		rv = 0 // no server sends it, so it equals nothing
	}
	return version{
		key:   cache.MetaObjectToName(obj).String(),
		uid:   string(obj.GetUID()),
		tier:  obj.GetLabels()[tierLabel],
		value: obj.GetAnnotations()[valueAnnotation],
		rv:    rv,
	}
}

func (s spec) selects(v version) bool {
	return (s.tier == "" || v.tier == s.tier) && (s.namespace == "" || strings.HasPrefix(v.key, s.namespace+"/"))
}

// String is how a version is written to the pipe: without tabs or newlines, the
// key first and the UID second.
func (v version) String() string {
	return fmt.Sprintf("%s %s %d %s %s", v.key, v.uid, v.rv, v.value, v.tier)
}

func parseVersion(s string) (v version, err error) {
	_, err = fmt.Sscan(s, &v.key, &v.uid, &v.rv, &v.value, &v.tier)
	return v, err
}

// id is one object, as opposed to whatever has its name.
type id struct{ key, uid string }

func (v version) id() id { return id{v.key, v.uid} }

// indexName names the index that every informer has besides that by namespace.
const indexName = "by-value"

// indexFuncs are its function in versions of the program.
var indexFuncs = map[string]cache.IndexFunc{
	"1": func(obj any) ([]string, error) { return indexByDigits(obj) },
	"2": func(obj any) ([]string, error) { return indexByTier(obj) },
}

// indexByDigits has two values for some objects and none for others.
func indexByDigits(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", obj)
	}
	n, err := strconv.Atoi(o.GetAnnotations()[valueAnnotation])
	switch {
	case err != nil || n%5 == 0:
		return nil, err
	case n%3 == 0:
		return []string{strconv.Itoa(n % 10), "three"}, nil
	}
	return []string{strconv.Itoa(n % 10)}, nil
}

func indexByTier(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", obj)
	}
	return []string{o.GetLabels()[tierLabel]}, nil
}
