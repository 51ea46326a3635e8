package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/warmcache/warmcache/e2e/controlplane"
	"github.com/warmcache/warmcache/informer"
)

// pollInterval is how often the server is asked for what it is about to do.
const pollInterval = 20 * time.Millisecond

// change changes objects of names("object", 50), so that a process which is to learn
// of it without a list delivers 2 adds, 1 update and 2 deletes.
func (s *subject) change() {
	s.t.Helper()
	s.create("", "new")
	s.update("changed", "object-000")
	s.delete("object-001", "object-002")
	s.create("", "object-002")
}

// store leaves 50 objects in the file of a subject and returns what they are.
func (s *subject) store() map[string]map[string]state {
	s.t.Helper()
	s.create("", names("object", 50)...)
	c := s.start()
	c.waitSynced()
	c.waitPersisted()
	c.kill()
	return s.fresh()
}

// waitRefused waits until a request of the process has failed with an error that
// contains want.
func (c *child) waitRefused(want string) {
	c.subject.t.Helper()
	c.waitUntil("a request fails with "+want, func(now contents) error {
		if !strings.Contains(now.Status.Err, want) {
			return fmt.Errorf("the error is %q", now.Status.Err)
		}
		return nil
	})
}

// wantStill fails the test unless the process still serves what there was, and still
// says that it has synced.
func (c *child) wantStill(before map[string]map[string]state) {
	c.subject.t.Helper()
	for resource, now := range c.look().Informers {
		if err := differs(resource, before[resource], now.Objects); err != nil {
			c.subject.t.Error(err)
		}
		if !now.Status.Synced {
			c.subject.t.Errorf("%s: %+v, want synced", resource, now.Status)
		}
	}
}

// wantResumedAfterChange fails the test unless the process has synced without a list
// with what change has changed while there was none.
func (c *child) wantResumedAfterChange() {
	c.subject.t.Helper()
	c.wantCurrent(c.waitSynced())
	c.wantLists(0)
	c.wantDeparted("object-001", "object-002")
	c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50 + 2, Deletes: 2})
}

// Forbidden is not empty, and not gone.
func TestForbidden_AtStart_ServesReadsAndWaits(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		s := newSubject(t, configMaps).residing(r)
		here := newCluster(t, plane)
		here.permit(t, s.namespace, "get", "list", "watch")
		s.config.Token = plane.API.ConfigFor(controlplane.LimitedUser).BearerToken
		// A server that says no is not out of reach.
		s.config.Stale = 100 * time.Millisecond
		before := s.store()
		s.change()

		here.permit(t, s.namespace, "get")
		c := s.start()
		c.waitRefused("forbidden")
		c.waitServingFromDisk(before)
		here.permit(t, s.namespace, "get", "list", "watch")
		c.wantResumedAfterChange()
	})
}

func TestForbidden_WhileRunning_StaysAndGoesOn(t *testing.T) {
	inEachResidency(t, func(t *testing.T, r informer.Residency) {
		for _, left := range [][]string{{"get"}, {"get", "list"}, {"get", "watch"}} {
			t.Run(strings.Join(left, " and "), func(t *testing.T) {
				s := newSubject(t, configMaps).residing(r)
				here, link := newCluster(t, plane), newLink(t, s)
				here.permit(t, s.namespace, "get", "list", "watch")
				s.config.Token = plane.API.ConfigFor(controlplane.LimitedUser).BearerToken
				s.create("", names("object", 50)...)
				c := s.start()
				c.waitSynced()
				before := s.fresh()

				// A watch that is open goes on: permissions are looked at when it is opened.
				here.permit(t, s.namespace, left...)
				link.cut()
				s.change()
				link.restore(t)
				c.waitRefused("forbidden")
				c.wantStill(before)

				here.permit(t, s.namespace, "get", "list", "watch")
				c.waitCurrent()
				c.wantLists(1)
				c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50, Updates: 1, Deletes: 2})
			})
		}
	})
}

// account is a service account, and the file in which its token is.
type account struct {
	*subject
	file string
}

// newAccount makes a subject work with the permissions of a service account, and the
// token that is in a file.
func newAccount(t *testing.T, s *subject) *account {
	t.Helper()
	a := &account{subject: s, file: filepath.Join(t.TempDir(), "token")}
	s.config.Token, s.config.TokenFile = "", a.file
	newCluster(t, plane).permit(t, s.namespace, "get", "list", "watch")
	a.write(a.issue())
	return a
}

// issue creates the service account anew and returns a token of it.
func (a *account) issue() string {
	a.t.Helper()
	accounts := a.writer.CoreV1().ServiceAccounts(a.namespace)
	_, err := accounts.Create(a.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	token, err := accounts.CreateToken(a.t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return token.Status.Token
}

func (a *account) write(token string) {
	a.t.Helper()
	if err := os.WriteFile(a.file, []byte(token), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// expire makes the token that is in the file one that the server does not accept, and
// waits until it does not: it remembers for some seconds that it did.
func (a *account) expire() {
	a.t.Helper()
	token, err := os.ReadFile(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.writer.CoreV1().ServiceAccounts(a.namespace).Delete(a.t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		a.t.Fatal(err)
	}
	err = wait.PollUntilContextCancel(patiently(a.t), pollInterval, true, func(ctx context.Context) (bool, error) {
		review, err := a.writer.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token)}}, metav1.CreateOptions{})
		return err == nil && !review.Status.Authenticated, err
	})
	if err != nil {
		a.t.Fatalf("waiting until the token is not accepted: %v", err)
	}
}

func TestToken_ExpiredAndRenewed_NeedsNoList(t *testing.T) {
	starting := newAccount(t, newSubject(t, configMaps))
	before := starting.store()
	starting.change()
	running := newAccount(t, newSubject(t, configMaps))
	link := newLink(t, running.subject)
	running.create("", names("object", 50)...)
	c := running.start()
	c.waitSynced()
	unchanged := running.fresh()

	// Also an open watch of an expired token goes on.
	running.expire()
	link.cut()
	running.change()
	link.restore(t)
	c.waitRefused("nauthorized")
	c.wantStill(unchanged)
	running.write(running.issue())
	c.waitCurrent()
	c.wantLists(1)
	c.wantDelivered(counts{Adds: 50 + 2, InitialAdds: 50, Updates: 1, Deletes: 2})

	starting.expire()
	c = starting.start()
	c.waitRefused("nauthorized")
	c.waitServingFromDisk(before)
	starting.write(starting.issue())
	c.wantResumedAfterChange()
}

// A server with a certificate of another CA is not the server, until the client is told
// that it is.
func TestCertificate_OfAnotherCA_IsNotBelieved(t *testing.T) {
	s := newSubject(t, configMaps)
	link := newLink(t, s)
	s.create("", names("object", 50)...)
	c := s.start()
	c.waitSynced()
	c.waitPersisted()
	before := s.fresh()

	link.cut()
	if err := plane.API.RenewCertificate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.writer = clientFor(t, "writer")
	s.change()
	link.restore(t)
	c.waitRefused("x509")
	c.wantStill(before)
	c.terminate()

	c = s.start()
	c.waitRefused("x509")
	c.waitServingFromDisk(before)
	if c.hasSynced() {
		t.Error("synced without a server")
	}
	c.terminate()

	s.config.CA = plane.API.Config().CAData
	c = s.start()
	c.wantResumedAfterChange()
}
