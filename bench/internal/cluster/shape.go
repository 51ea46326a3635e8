package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warmcache/warmcache/internal/apitest"
)

// PodsPerNode is how many pods of either shape a node runs, but for the last one.
const PodsPerNode = 50

// Shape makes the pods of a cluster.
type Shape struct {
	// Name is the shape's in reports.
	Name string
	// Pod returns pod number i, the same for the same i.
	Pod func(i int) *corev1.Pod
	// Node is the name of the node that pod number i runs on.
	Node func(i int) string
}

// Real are pods as a Deployment and a kubelet leave them: about 5 KB of protobuf,
// two thirds of it managedFields.
var Real = Shape{
	Name: "real",
	Pod: func(i int) *corev1.Pod {
		return apitest.Pod(fmt.Sprintf("team-%03d", i/1000), apitest.PodName(i), i)
	},
	Node: func(i int) string { return apitest.Pod("", "", i).Spec.NodeName },
}

// Small are pods with as little as a running pod can have: about 600 bytes.
var Small = Shape{Name: "small", Pod: smallPod, Node: smallNode}

func smallNode(i int) string { return fmt.Sprintf("node-%05d", i/PodsPerNode) }

func smallPod(i int) *corev1.Pod {
	job := fmt.Sprintf("job-%05d", i/100)
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("batch-%03d", i/10_000),
			Name:      fmt.Sprintf("%s-%07d", job, i),
			Labels:    map[string]string{"batch.kubernetes.io/job-name": job},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: job, Controller: new(true),
				UID: types.UID(fmt.Sprintf("7c2f4a10-0000-4000-8000-%012x", i/100)),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:      smallNode(i),
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/batch/worker:v3", Args: []string{fmt.Sprintf("--part=%d", i)},
			}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Image: "registry.example.com/batch/worker:v3",
				ContainerID: fmt.Sprintf("containerd://%064x", uint64(i)*0xc2b2ae3d27d4eb4f),
			}},
		},
	}
}
