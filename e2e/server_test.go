package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// patience bounds waiting for what must happen. Nothing is measured by it.
const patience = time.Minute

func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// clientFor returns a client of the admin whose requests carry a user agent.
func clientFor(t *testing.T, agent string) *kubernetes.Clientset {
	t.Helper()
	config := plane.API.Config()
	config.UserAgent = agent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func createConfigMap(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// touchConfigMap changes the content of an object.
func touchConfigMap(t *testing.T, client kubernetes.Interface, namespace, name, data string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": data}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deleteConfigMap(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// freshList returns what the server has: the resourceVersion of each object by
// its key, from a consistent read.
func freshList(t *testing.T, client kubernetes.Interface, namespace string) map[string]string {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for i := range list.Items {
		versions[list.Items[i].Namespace+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return versions
}

// forgetHistory makes every resourceVersion that exists too old to watch from:
// after a restart a watch cache resumes nothing older than its first list, and
// that list is newer than anything before this call.
func forgetHistory(t *testing.T) {
	t.Helper()
	newNamespace(t, clientFor(t, "forget-history"))
	if err := plane.API.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
