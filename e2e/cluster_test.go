package e2e

import (
	"context"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// cluster is one of the two control planes that may be behind the address which a
// subject knows.
type cluster struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
}

func newCluster(t *testing.T, cp *controlplane.ControlPlane) cluster {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.API.Config())
	if err != nil {
		t.Fatal(err)
	}
	return cluster{ControlPlane: cp, client: client}
}

// mover is a subject whose address may lead to another cluster.
type mover struct {
	*subject
	link *link
}

// newMover returns a subject with 20 objects in one cluster, of which 10 names are
// taken in the other one, too, where there is something else besides.
func newMover(t *testing.T, r informer.Residency, here, there cluster) *mover {
	t.Helper()
	s := newSubject(t, configMaps).residing(r)
	m := &mover{subject: s, link: newLink(t, s)}
	s.create("", names("object", 20)...)
	_, err := there.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.writer = there.client
	s.create("", append(names("object", 10), "theirs")...)
	s.writer = here.client
	return m
}

// moveTo makes the address of the subject lead to a cluster. What handlers know of the
// other one is nothing that they are to be told of any more.
func (m *mover) moveTo(to cluster) {
	m.t.Helper()
	m.link.cut()
	m.link.running.Wait()
	m.link.balance(0, to.API)
	m.link.restore(m.t)
	m.writer, m.apis = to.client, []*controlplane.APIServer{to.API}
	for resource := range m.knowledge {
		m.knowledge[resource] = newKnowledge()
	}
}

// leave leaves the objects of a cluster in the file, and the record of a delete.
func (m *mover) leave() {
	m.t.Helper()
	c := m.start()
	c.waitSynced()
	m.delete("object-005")
	c.waitCurrent()
	c.waitPersisted()
	c.kill()
}

// Nothing of one cluster is served as if it were of another, or delivered as deleted.
func TestCluster_Another(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{SameAccess: plane})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	here, there := newCluster(t, plane), newCluster(t, cp)

	t.Run("told by kube-system", func(t *testing.T) {
		inEachResidency(t, func(t *testing.T, r informer.Residency) {
			m := newMover(t, r, here, there)
			m.leave()
			m.moveTo(there)
			m.startAnew(11)
			// And back again: the file is another cluster's now.
			m.moveTo(here)
			m.startAnew(19)
		})
	})
	t.Run("while running", func(t *testing.T) {
		inEachResidency(t, func(t *testing.T, r informer.Residency) {
			m := newMover(t, r, here, there)
			c := m.start()
			c.waitSynced()
			c.waitPersisted()
			m.moveTo(there)
			want := m.fresh()
			c.eventually("the informers have what the other cluster has", func() error {
				return differs("indexer", want["configmaps"], c.look().Informers["configmaps"].Objects)
			})
			c.wantListReason("another cluster")
			c.waitPersisted()
			c.terminate()

			// The file is that cluster's now: what is deleted in it is not forgotten. What
			// handlers were told lately is told again, as always.
			m.delete("theirs")
			c = m.start()
			c.waitSynced()
			c.wantLists(0)
			departed, _ := splitReplay(c.views["configmaps"].events())
			if !slices.Contains(departed, m.key("configmaps", "theirs")) {
				t.Errorf("departed objects are %q, want the one that was deleted among them", departed)
			}
			c.terminate()
			m.moveTo(here)
			m.startAnew(20)
		})
	})
	t.Run("told by the keys of tokens", func(t *testing.T) {
		m := newMover(t, informer.Memory, here, there)
		for _, c := range []cluster{here, there} {
			c.permit(t, m.namespace, "get", "list", "watch")
			c.permitKeys(t)
		}
		m.config.Token = plane.API.ConfigFor(controlplane.LimitedUser).BearerToken
		m.leave()
		m.moveTo(there)
		m.startAnew(11)
	})
	t.Run("told by nothing", func(t *testing.T) {
		m := newMover(t, informer.Memory, here, there)
		for _, c := range []cluster{here, there} {
			c.permit(t, m.namespace, "get", "list", "watch")
		}
		m.config.Token = plane.API.ConfigFor(controlplane.LimitedUser).BearerToken
		m.leave()
		m.moveTo(there)
		// It is taken for the same cluster, restored from who knows what.
		c := m.start()
		if err := differs("indexer", m.fresh()["configmaps"], c.waitSynced().Informers["configmaps"].Objects); err != nil {
			t.Error(err)
		}
		c.wantLists(1)
		departed, _ := splitReplay(c.views["configmaps"].events())
		if len(departed) < 19 {
			t.Errorf("%d departed objects, want all that were stored: %q", len(departed), departed)
		}
	})
}

// startAnew starts a process that is to find another cluster than that of the file, with
// n objects, and ends it.
func (m *mover) startAnew(n int) {
	m.t.Helper()
	c := m.start()
	synced := c.waitSynced()
	c.wantCurrent(synced)
	c.wantLists(1)
	c.wantListReason("another cluster")
	c.wantDeparted()
	c.wantDelivered(counts{Adds: n, InitialAdds: n})
	c.waitPersisted()
	c.terminate()
}

// permit gives LimitedUser, and the service accounts of a namespace, some verbs for the
// configmaps in it, and takes all others away.
func (c cluster) permit(t *testing.T, namespace string, verbs ...string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "configmaps"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}},
	}
	roles := c.client.RbacV1().Roles(namespace)
	_, err := roles.Update(t.Context(), role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = roles.Create(t.Context(), role, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "configmaps"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controlplane.LimitedUser},
			{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + namespace},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	_, err = c.client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, verb := range []string{"list", "watch"} {
		c.waitPermitted(t, slices.Contains(verbs, verb), authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "configmaps"},
		})
	}
}

// permitKeys lets LimitedUser read the keys of tokens, as every service account may,
// until the end of the test.
func (c cluster) permitKeys(t *testing.T) {
	t.Helper()
	bindings := c.client.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "keys-"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controlplane.LimitedUser}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys := authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/openid/v1/jwks", Verb: "get"},
	}
	c.waitPermitted(t, true, keys)
	t.Cleanup(func() {
		if err := bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// waitPermitted waits until LimitedUser may do something, or may not: the server learns
// of permissions a moment after they were given.
func (c cluster) waitPermitted(t *testing.T, want bool, what authorizationv1.SelfSubjectAccessReviewSpec) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.API.ConfigFor(controlplane.LimitedUser))
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextCancel(patiently(t), pollInterval, true, func(ctx context.Context) (bool, error) {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: what}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed == want, err
	})
	if err != nil {
		t.Fatalf("waiting until %+v is permitted, or is not: %v", what, err)
	}
}
