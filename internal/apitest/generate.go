package apitest

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Sizes of the imaginary cluster that Pod makes objects for.
const (
	podsPerNode       = 50
	podsPerDeployment = 30
)

// epoch is when everything in the imaginary cluster was created. It is constant
// so that the same arguments give the same object.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Pod returns a running pod as a Deployment and a kubelet leave it, about 5 KB
// in protobuf, two thirds of it managedFields. i picks its Deployment, node
// and addresses; equal arguments give equal pods.
func Pod(namespace, name string, i int) *corev1.Pod {
	app := fmt.Sprintf("app-%03d", i/podsPerDeployment)
	hash := fmt.Sprintf("%010x", uint32(i/podsPerDeployment)*2654435761)
	pod := &corev1.Pod{
		ObjectMeta: podMeta(namespace, name, app, hash, i),
		Spec:       podSpec(app, i),
		Status:     podStatus(app, i),
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		managedBy("kube-controller-manager", "", createdFields(pod)),
		managedBy("kubelet", "status", statusFields(pod)),
	}
	return pod
}

// PodName is a name such as a ReplicaSet gives, for pod number i. Names sort in
// another order than their numbers.
func PodName(i int) string {
	return fmt.Sprintf("app-%03d-%08x-%05d", i/podsPerDeployment, uint32(i)*2246822519, i)
}

func podMeta(namespace, name, app, hash string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:    namespace,
		Name:         name,
		GenerateName: app + "-" + hash + "-",
		Generation:   1,
		Labels: map[string]string{
			"app.kubernetes.io/name":      app,
			"app.kubernetes.io/instance":  app + "-prod",
			"app.kubernetes.io/component": []string{"frontend", "backend", "worker"}[i%3],
			"pod-template-hash":           hash,
		},
		Annotations: map[string]string{
			"checksum/config":      fmt.Sprintf("%064x", uint64(i)*0x9e3779b97f4a7c15),
			"prometheus.io/scrape": "true",
			"prometheus.io/port":   "9090",
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         "apps/v1",
			Kind:               "ReplicaSet",
			Name:               app + "-" + hash,
			UID:                types.UID(fmt.Sprintf("5b1d7c3e-0000-4000-8000-%012x", i/podsPerDeployment)),
			Controller:         new(true),
			BlockOwnerDeletion: new(true),
		}},
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d.example.internal", i/podsPerNode) }

func podSpec(app string, i int) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      nodeName(i),
		ServiceAccountName:            app,
		RestartPolicy:                 corev1.RestartPolicyAlways,
		DNSPolicy:                     corev1.DNSClusterFirst,
		SchedulerName:                 corev1.DefaultSchedulerName,
		TerminationGracePeriodSeconds: new(int64(30)),
		SecurityContext:               &corev1.PodSecurityContext{},
		EnableServiceLinks:            new(true),
		Priority:                      new(int32(0)),
		Containers:                    []corev1.Container{container(app)},
		Tolerations: []corev1.Toleration{
			toleration("node.kubernetes.io/not-ready"),
			toleration("node.kubernetes.io/unreachable"),
		},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"},
					DefaultMode:          new(int32(0o644)),
				},
			}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

func container(app string) corev1.Container {
	return corev1.Container{
		Name:            "main",
		Image:           "registry.example.com/team/" + app + ":v1.4.2",
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"--config=/etc/app/config.yaml", "--listen=:8080"},
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP},
		},
		Env: []corev1.EnvVar{
			{Name: "APP", Value: app},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
			}},
		},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse("512Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("100m"), corev1.ResourceMemory: apiresource.MustParse("256Mi")},
		},
		ReadinessProbe:           probe("/readyz"),
		LivenessProbe:            probe("/healthz"),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/app", ReadOnly: true},
			{Name: "tmp", MountPath: "/tmp"},
		},
	}
}

func probe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
		}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func toleration(key string) corev1.Toleration {
	return corev1.Toleration{
		Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: new(int64(300)),
	}
}

func podStatus(app string, i int) corev1.PodStatus {
	started := metav1.NewTime(epoch.Add(time.Duration(i%3600) * time.Second))
	ip := fmt.Sprintf("10.%d.%d.%d", 128+i>>16&127, i>>8&255, i&255)
	host := fmt.Sprintf("10.0.%d.%d", i/podsPerNode>>8&255, i/podsPerNode&255)
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		PodIP:     ip,
		PodIPs:    []corev1.PodIP{{IP: ip}},
		HostIP:    host,
		HostIPs:   []corev1.HostIP{{IP: host}},
		QOSClass:  corev1.PodQOSBurstable,
		StartTime: &started,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name:        "main",
			Ready:       true,
			Started:     new(true),
			Image:       "registry.example.com/team/" + app + ":v1.4.2",
			ImageID:     fmt.Sprintf("registry.example.com/team/%s@sha256:%064x", app, i/podsPerDeployment),
			ContainerID: fmt.Sprintf("containerd://%064x", uint64(i)*0xc2b2ae3d27d4eb4f),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	}
	for _, condition := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: started,
		})
	}
	return status
}

// managedBy is what server-side tracking of field ownership adds to an object.
func managedBy(manager, subresource string, fields map[string]any) metav1.ManagedFieldsEntry {
	raw, err := json.Marshal(fields)
	if err != nil {
		raw = []byte("{}") // cannot happen: a tree of maps
	}
	return metav1.ManagedFieldsEntry{
		Manager:     manager,
		Operation:   metav1.ManagedFieldsOperationUpdate,
		APIVersion:  "v1",
		Time:        new(metav1.NewTime(epoch)),
		FieldsType:  "FieldsV1",
		FieldsV1:    &metav1.FieldsV1{Raw: raw},
		Subresource: subresource,
	}
}

// Widget returns a custom resource of Widgets, with nested content of every
// JSON type.
func Widget(namespace, name string, i int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"size":    int64(i),
			"ratio":   0.5,
			"enabled": i%2 == 0,
			"color":   []string{"red", "green", "blue"}[i%3],
			"parts":   []any{map[string]any{"name": "wheel", "count": int64(4)}, map[string]any{"name": "axle", "count": int64(2)}},
			"empty":   map[string]any{},
			"nothing": nil,
		},
	}}
	u.SetGroupVersionKind(Widgets.GVR.GroupVersion().WithKind(Widgets.Kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"color": u.Object["spec"].(map[string]any)["color"].(string)})
	return u
}
