// Package contract is the behaviour that internal/apitest shares with
// kube-apiserver, as one suite of tests: against the double in every run, and
// against a real server in the e2e module. An assertion belongs here only if it
// is true of both; then the double cannot lie about it.
//
// Other clients may write to the server meanwhile, as controllers inside
// kube-apiserver do, but not to ConfigMaps: an unexpected version of those makes
// a test try again, and fail after a few times.
package contract

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Target is a server to run the suite against.
type Target struct {
	// Config has an address and credentials that may do everything in the
	// namespaces below. Its content types are ignored.
	Config *rest.Config
	// Namespace is where objects are made. Each test uses a namespace whose
	// name begins with it, creates it, deletes its own objects, and leaves the
	// namespace.
	Namespace string
	// CustomResource is a namespaced custom resource with a free-form spec that
	// the server serves. Without it, tests of custom resources are skipped.
	CustomResource *schema.GroupVersionKind
	// CustomResourcePlural is the resource of CustomResource.
	CustomResourcePlural string
	// ForgetHistory makes every present resourceVersion too old to watch from,
	// which may take a restart of the server. When it returns, the server is
	// ready. Without it, tests of expired versions are skipped.
	ForgetHistory func(t *testing.T)
}

// patience is how long a test waits for something that has to happen. Nothing
// is proved by it being short.
const patience = 20 * time.Second

type test struct {
	name string
	run  func(t *testing.T, s *suite)
}

// Run runs the suite as subtests of t. It takes about 45 seconds, most of them
// spent waiting for watches to end.
func Run(t *testing.T, target Target) {
	var all []test
	for _, group := range [][]test{
		writeTests, listTests, pageTests, versionTests, watchTests, watchListTests,
		selectorTests, bookmarkTests, formTests, customTests, expiryTests,
	} {
		all = append(all, group...)
	}
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, newSuite(t, target)) })
	}
}

// suite is what one test works with.
type suite struct {
	target Target
	ctx    context.Context
	ns     string
	// typed speaks protobuf, json the same in JSON.
	typed, json kubernetes.Interface
	dynamic     dynamic.Interface
}

func newSuite(t *testing.T, target Target) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s := &suite{target: target, ctx: ctx, ns: target.Namespace}
	s.typed = must(kubernetes.NewForConfig(s.config(runtime.ContentTypeProtobuf)))(t)
	s.json = must(kubernetes.NewForConfig(s.config(runtime.ContentTypeJSON)))(t)
	s.dynamic = must(dynamic.NewForConfig(s.config("")))(t)
	s.namespace(t, s.ns)
	t.Cleanup(func() { s.clean(t, s.ns) })
	return s
}

// config is for a client of the given content type.
func (s *suite) config(contentType string) *rest.Config {
	c := rest.CopyConfig(s.target.Config)
	c.QPS = -1
	c.ContentType = contentType
	c.AcceptContentTypes = contentType
	return c
}

func (s *suite) metadata(t *testing.T, contentType string) metadata.Interface {
	t.Helper()
	return must(metadata.NewForConfig(s.config(contentType)))(t)
}

// must returns a function that fails the test on an error of a call.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// namespace creates a namespace unless it exists.
func (s *suite) namespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.typed.CoreV1().Namespaces().Create(s.ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// clean deletes what tests make.
func (s *suite) clean(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	core := s.typed.CoreV1()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	ours := metav1.ListOptions{LabelSelector: labelSuite}
	for _, err := range []error{
		core.ConfigMaps(namespace).DeleteCollection(ctx, now, ours),
		core.Secrets(namespace).DeleteCollection(ctx, now, ours),
		core.Pods(namespace).DeleteCollection(ctx, now, ours),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

func (s *suite) configMaps() typedcorev1.ConfigMapInterface { return s.typed.CoreV1().ConfigMaps(s.ns) }

// labelSuite marks the objects of the suite, so that it neither sees nor
// deletes others.
const labelSuite = "warmcache-contract"

func objectMeta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{labelSuite: ""}
	for k, v := range labels {
		all[k] = v
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: all}
}

// put creates a ConfigMap in the suite's namespace.
func (s *suite) put(t *testing.T, name string, labels map[string]string) *corev1.ConfigMap {
	t.Helper()
	return s.putIn(t, s.ns, name, labels)
}

func (s *suite) putIn(t *testing.T, namespace, name string, labels map[string]string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: objectMeta(namespace, name, labels),
		Data:       map[string]string{"key": "value of " + name},
	}
	return must(s.typed.CoreV1().ConfigMaps(namespace).Create(s.ctx, cm, metav1.CreateOptions{}))(t)
}

// change updates a ConfigMap and returns it as stored.
func (s *suite) change(t *testing.T, cm *corev1.ConfigMap, fn func(*corev1.ConfigMap)) *corev1.ConfigMap {
	t.Helper()
	cm = cm.DeepCopy()
	fn(cm)
	return must(s.configMaps().Update(s.ctx, cm, metav1.UpdateOptions{}))(t)
}

func (s *suite) remove(t *testing.T, name string) {
	t.Helper()
	if err := s.configMaps().Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// touchOther writes a resource other than ConfigMaps, which moves the server's
// version but not the watch cache of ConfigMaps. It returns the version.
func (s *suite) touchOther(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: objectMeta(s.ns, "", nil)}
	secret.GenerateName = "other-"
	return must(s.typed.CoreV1().Secrets(s.ns).Create(s.ctx, secret, metav1.CreateOptions{}))(t).ResourceVersion
}

// list lists ConfigMaps of the suite in its namespace.
func (s *suite) list(t *testing.T, opts metav1.ListOptions) *corev1.ConfigMapList {
	t.Helper()
	return must(s.configMaps().List(s.ctx, opts))(t)
}

// current is the server's version. Asking for it moves the watch cache of
// ConfigMaps.
func (s *suite) current(t *testing.T) string {
	t.Helper()
	return s.list(t, metav1.ListOptions{Limit: 1}).ResourceVersion
}
