package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func newCluster(t *testing.T, shape Shape, pods int) (*Cluster, *kubernetes.Clientset) {
	t.Helper()
	c, err := New(shape, pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: c.URL(), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

func list(t *testing.T, client *kubernetes.Clientset, o metav1.ListOptions) *corev1.PodList {
	t.Helper()
	pods, err := client.CoreV1().Pods("").List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestCluster_PodsAreOfTheirShape(t *testing.T) {
	for _, test := range []struct {
		shape    Shape
		min, max int
	}{
		{Real, 4500, 5500},
		{Small, 500, 700},
	} {
		t.Run(test.shape.Name, func(t *testing.T) {
			const pods = 120
			_, client := newCluster(t, test.shape, pods)
			nodes := map[string]int{}
			for _, pod := range list(t, client, metav1.ListOptions{}).Items {
				nodes[pod.Spec.NodeName]++
				if size := pod.Size(); size < test.min || size > test.max {
					t.Fatalf("a pod has %d bytes, want %d to %d", size, test.min, test.max)
				}
			}
			for i, want := range map[int]int{0: PodsPerNode, PodsPerNode: PodsPerNode, pods - 1: pods % PodsPerNode} {
				if got := nodes[test.shape.Node(i)]; got != want {
					t.Errorf("the node of pod %d has %d pods, want %d", i, got, want)
				}
			}
		})
	}
}

func TestCluster_Change_TakesOthersEachRound(t *testing.T) {
	c, client := newCluster(t, Small, 500)
	before := list(t, client, metav1.ListOptions{}).ResourceVersion
	for range 3 {
		if updates, err := c.Change(); updates != 5 || err != nil {
			t.Fatal(updates, err)
		}
	}
	changed := 0
	for _, pod := range list(t, client, metav1.ListOptions{}).Items {
		if pod.Annotations["example.com/round"] != "" {
			changed++
		}
	}
	if changed != 15 {
		t.Errorf("%d pods have changed, want 15", changed)
	}
	if at := exact(before); len(list(t, client, at).Items) != 500 {
		t.Error("the state before is not remembered")
	}
}

// exact asks for the state at a version, which a server that remembers it can
// also begin a watch from.
func exact(rv string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

func TestCluster_Outage_MustBeListedAfter(t *testing.T) {
	c, client := newCluster(t, Small, 100)
	before := list(t, client, metav1.ListOptions{}).ResourceVersion
	err := c.Outage(func() error {
		if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Error("the server answers during the outage")
		}
		_, err := c.Change()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods("").List(t.Context(), exact(before))
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("listing the state before the outage: %v, want Expired", err)
	}
}
