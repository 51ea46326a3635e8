package apitest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// tree is a node of FieldsV1: "f:" keys are fields, "k:" keys select list items
// and "." is the item itself.
type tree = map[string]any

func leaf() tree { return tree{} }

// leaves is a node with these fields and nothing below them.
func leaves(names ...string) tree {
	t := tree{}
	for _, name := range names {
		t["f:"+name] = leaf()
	}
	return t
}

// item is a node that is owned itself, too.
func item(t tree) tree {
	t["."] = leaf()
	return t
}

// createdFields are those that the ReplicaSet controller set.
func createdFields(pod *corev1.Pod) tree {
	labels, annotations := item(tree{}), item(tree{})
	for name := range pod.Labels {
		labels["f:"+name] = leaf()
	}
	for name := range pod.Annotations {
		annotations["f:"+name] = leaf()
	}
	metadata := tree{
		"f:generateName":    leaf(),
		"f:labels":          labels,
		"f:annotations":     annotations,
		"f:ownerReferences": item(tree{fmt.Sprintf("k:{%q:%q}", "uid", pod.OwnerReferences[0].UID): leaf()}),
	}
	spec := leaves("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext",
		"serviceAccount", "serviceAccountName", "terminationGracePeriodSeconds")
	spec["f:containers"] = tree{`k:{"name":"main"}`: containerFields(&pod.Spec.Containers[0])}
	spec["f:volumes"] = volumeFields(pod.Spec.Volumes)
	return tree{"f:metadata": metadata, "f:spec": spec}
}

func containerFields(c *corev1.Container) tree {
	t := item(leaves("name", "image", "imagePullPolicy", "args", "terminationMessagePath", "terminationMessagePolicy"))
	ports, env, mounts := item(tree{}), item(tree{}), item(tree{})
	for _, p := range c.Ports {
		ports[fmt.Sprintf(`k:{"containerPort":%d,"protocol":"TCP"}`, p.ContainerPort)] = item(leaves("containerPort", "name", "protocol"))
	}
	for _, e := range c.Env {
		env[fmt.Sprintf(`k:{"name":%q}`, e.Name)] = item(leaves("name", "value"))
	}
	for _, m := range c.VolumeMounts {
		mounts[fmt.Sprintf(`k:{"mountPath":%q}`, m.MountPath)] = item(leaves("mountPath", "name", "readOnly"))
	}
	t["f:ports"], t["f:env"], t["f:volumeMounts"] = ports, env, mounts
	t["f:resources"] = item(tree{"f:limits": item(leaves("memory")), "f:requests": item(leaves("cpu", "memory"))})
	t["f:livenessProbe"], t["f:readinessProbe"] = probeFields(), probeFields()
	return t
}

func probeFields() tree {
	t := item(leaves("failureThreshold", "periodSeconds", "successThreshold", "timeoutSeconds"))
	t["f:httpGet"] = item(leaves("path", "port", "scheme"))
	return t
}

func volumeFields(volumes []corev1.Volume) tree {
	t := item(tree{})
	for _, v := range volumes {
		fields := item(leaves("name"))
		if v.ConfigMap != nil {
			fields["f:configMap"] = item(leaves("defaultMode", "name"))
		} else {
			fields["f:emptyDir"] = leaf()
		}
		t[fmt.Sprintf(`k:{"name":%q}`, v.Name)] = fields
	}
	return t
}

// statusFields are those that the kubelet set.
func statusFields(pod *corev1.Pod) tree {
	conditions := item(tree{})
	for _, c := range pod.Status.Conditions {
		conditions[fmt.Sprintf(`k:{"type":%q}`, c.Type)] = item(leaves("lastProbeTime", "lastTransitionTime", "observedGeneration", "status", "type"))
	}
	status := leaves("containerStatuses", "hostIP", "phase", "podIP", "qosClass", "startTime")
	status["f:conditions"] = conditions
	status["f:hostIPs"] = item(tree{fmt.Sprintf(`k:{"ip":%q}`, pod.Status.HostIP): item(leaves("ip"))})
	status["f:podIPs"] = item(tree{fmt.Sprintf(`k:{"ip":%q}`, pod.Status.PodIP): item(leaves("ip"))})
	return tree{"f:status": status}
}
