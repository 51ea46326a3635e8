package contract

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var selectorTests = []test{
	{"Label_List", testLabelList},
	{"Label_Watch_TransitionsAreAddAndDelete", testLabelTransitions},
	{"Field_Pod_ListAndTransitions", testPodFields},
	{"Field_Unknown_BadRequest", testUnknownField},
}

func testLabelList(t *testing.T, s *suite) {
	s.put(t, "a", map[string]string{"tier": "web", "env": "prod"})
	s.put(t, "b", map[string]string{"tier": "db", "env": "prod"})
	s.put(t, "c", map[string]string{"tier": "web"})
	s.put(t, "d", nil)
	for selector, want := range map[string][]string{
		"tier=web":                {"a", "c"},
		"tier!=web":               {"b", "d"},
		"tier in (web,db)":        {"a", "b", "c"},
		"tier notin (web)":        {"b", "d"},
		"env":                     {"a", "b"},
		"!tier":                   {"d"},
		"tier=web,env=prod":       {"a"},
		"tier=web,tier=db":        {},
		"tier in (web),!env":      {"c"},
		"tier=web,env notin (qa)": {"a", "c"},
	} {
		got := names(s.list(t, metav1.ListOptions{LabelSelector: labelSuite + "," + selector}))
		if !slices.Equal(got, want) {
			t.Errorf("%s selects %v, want %v", selector, got, want)
		}
	}
}

func testLabelTransitions(t *testing.T, s *suite) {
	rv := s.current(t)
	cm := s.put(t, "a", nil)
	in := s.change(t, cm, func(cm *corev1.ConfigMap) { cm.Labels["in"] = "yes" })
	still := s.change(t, in, func(cm *corev1.ConfigMap) { cm.Data["key"] = "new" })
	out := s.change(t, still, func(cm *corev1.ConfigMap) { delete(cm.Labels, "in"); cm.Data["key"] = "hidden" })
	s.change(t, out, func(cm *corev1.ConfigMap) { cm.Labels["in"] = "yes" })
	s.remove(t, "a")

	st := s.watch(t, metav1.ListOptions{ResourceVersion: rv, LabelSelector: "in=yes"})
	if got := st.want(watch.Added, "a"); got.GetResourceVersion() != in.ResourceVersion {
		t.Errorf("added at %s, want %s", got.GetResourceVersion(), in.ResourceVersion)
	}
	st.want(watch.Modified, "a")
	gone := st.want(watch.Deleted, "a").(*corev1.ConfigMap)
	if gone.ResourceVersion != out.ResourceVersion || gone.Data["key"] != "new" || gone.Labels["in"] != "yes" {
		t.Errorf("deleted as %v at %s, want the last selected state at %s", gone.Data, gone.ResourceVersion, out.ResourceVersion)
	}
	st.want(watch.Added, "a")
	st.want(watch.Deleted, "a")
}

func (s *suite) pod(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: objectMeta(s.ns, name, nil),
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/image:1"}},
		},
	}
	return must(s.typed.CoreV1().Pods(s.ns).Create(s.ctx, pod, metav1.CreateOptions{}))(t)
}

func (s *suite) setPhase(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	return must(s.typed.CoreV1().Pods(s.ns).UpdateStatus(s.ctx, pod, metav1.UpdateOptions{}))(t)
}

func testPodFields(t *testing.T, s *suite) {
	pods := s.typed.CoreV1().Pods(s.ns)
	start := must(pods.List(s.ctx, metav1.ListOptions{Limit: 1}))(t)
	running := s.setPhase(t, s.pod(t, "a", "node-1"), corev1.PodRunning)
	s.setPhase(t, s.pod(t, "b", "node-2"), corev1.PodRunning)
	done := s.setPhase(t, running, corev1.PodSucceeded)

	list := must(pods.List(s.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node-1"}))(t)
	if len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("%d pods on node-1, want a", len(list.Items))
	}
	list = must(pods.List(s.ctx, metav1.ListOptions{FieldSelector: "status.phase!=Succeeded"}))(t)
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("%d pods not succeeded, want b", len(list.Items))
	}
	st := newStream(t, must(pods.Watch(s.ctx, metav1.ListOptions{
		ResourceVersion: start.ResourceVersion, FieldSelector: "spec.nodeName=node-1,status.phase=Running",
	}))(t))
	st.want(watch.Added, "a")
	if gone := st.want(watch.Deleted, "a"); gone.GetResourceVersion() != done.ResourceVersion {
		t.Errorf("left the selection at %s, want %s", gone.GetResourceVersion(), done.ResourceVersion)
	}
}

func testUnknownField(t *testing.T, s *suite) {
	opts := metav1.ListOptions{FieldSelector: "spec.containers=x"}
	if _, err := s.typed.CoreV1().Pods(s.ns).List(s.ctx, opts); !apierrors.IsBadRequest(err) {
		t.Errorf("list: got %v, want BadRequest", err)
	}
	if _, err := s.typed.CoreV1().Pods(s.ns).Watch(s.ctx, opts); !apierrors.IsBadRequest(err) {
		t.Errorf("watch: got %v, want BadRequest", err)
	}
}
