package apitest

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectableFields returns the fields of obj that a field selector may name.
// Every resource has metadata.name and metadata.namespace; the others are those
// that kube-apiserver knows for the kinds most often selected by field.
func selectableFields(obj runtime.Object, meta metav1.Object) fields.Set {
	set := fields.Set{
		"metadata.name":      meta.GetName(),
		"metadata.namespace": meta.GetNamespace(),
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		addPodFields(set, o)
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Event:
		addEventFields(set, o)
	}
	return set
}

func addPodFields(set fields.Set, pod *corev1.Pod) {
	set["spec.nodeName"] = pod.Spec.NodeName
	set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
	set["spec.schedulerName"] = pod.Spec.SchedulerName
	set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
	set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
	set["status.phase"] = string(pod.Status.Phase)
	set["status.podIP"] = pod.Status.PodIP
	set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
}

func addEventFields(set fields.Set, event *corev1.Event) {
	set["involvedObject.kind"] = event.InvolvedObject.Kind
	set["involvedObject.namespace"] = event.InvolvedObject.Namespace
	set["involvedObject.name"] = event.InvolvedObject.Name
	set["involvedObject.uid"] = string(event.InvolvedObject.UID)
	set["reason"] = event.Reason
	set["type"] = event.Type
	set["source"] = event.Source.Component
}

// checkFieldSelector rejects fields that the resource cannot be selected by,
// with the message that a real server has for it.
func checkFieldSelector(r *resource, selector fields.Selector) error {
	if selector == nil || selector.Empty() {
		return nil
	}
	obj, err := r.newObject()
	if err != nil {
		return err
	}
	known := selectableFields(obj, &metav1.ObjectMeta{})
	for _, requirement := range selector.Requirements() {
		if _, ok := known[requirement.Field]; !ok {
			return unknownField(r.gvk, requirement.Field)
		}
	}
	return nil
}

func unknownField(gvk schema.GroupVersionKind, field string) error {
	if gvk.Group == "" && (gvk.Kind == "Pod" || gvk.Kind == "Event") {
		return fmt.Errorf("field label not supported: %s", field)
	}
	return fmt.Errorf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", field)
}
