package informer

import (
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Under the policies Stale and Resumed, and by whoever does not wait for HasSynced,
// objects are read before they are proven to be what the server has. One that is found
// may be out of date, as in any cache. One that is not found may have been created while
// nobody looked, and to clean up after it would be fatal. The functions here tell this
// "not found" from the real one.
//
// All of them look at the confirmation first and read afterwards. A state that is
// confirmed stays so, so that what is read then is confirmed. In the other order it
// could become so in between, and a "not found" of before would be believed.

// ConfirmedChecker is done once the state of inf is proven to be no older than the server
// was when inf started, which Status.Confirmed says, too. It never is if inf stops before.
// Reads then show that state; whether handlers have seen it is what HasSyncedChecker
// says. An informer that this package did not make is confirmed when it has synced,
// because it has nothing to show before.
func ConfirmedChecker(inf cache.SharedInformer) cache.DoneChecker {
	if c, ok := inf.GetController().(controller); ok {
		return confirmedChecker(c)
	}
	return inf.HasSyncedChecker()
}

type confirmedChecker struct{ informer *sharedIndexInformer }

func (c confirmedChecker) Name() string {
	return fmt.Sprintf("SharedIndexInformer %T confirmed", c.informer.example)
}
func (c confirmedChecker) Done() <-chan struct{} { return c.informer.confirmed }

// isConfirmed is Status.Confirmed.
func (i *sharedIndexInformer) isConfirmed() bool { return cache.IsDone(confirmedChecker{i}) }

// CheckConfirmed returns an error that wraps ErrUnconfirmed and names the first of the
// informers whose state is not confirmed, or nil. It belongs before a read of several
// objects that something is concluded from which are not among them: nil holds for all
// that is read after the call, and says nothing of what was read before.
func CheckConfirmed(informers ...cache.SharedInformer) error {
	for _, inf := range informers {
		if !cache.IsDone(ConfirmedChecker(inf)) {
			return fmt.Errorf("%s: %w", nameOf(inf), ErrUnconfirmed)
		}
	}
	return nil
}

// Read calls read, which reads one object of inf by any means, such as a lister or a
// client that reads from a cache, and returns its error. If that is a "not found", as
// apierrors.IsNotFound has it, and the state of inf was not confirmed before the call,
// Read returns an error that wraps ErrUnconfirmed instead, which is no "not found".
func Read(inf cache.SharedInformer, read func() error) error {
	unconfirmed := CheckConfirmed(inf)
	err := read()
	if unconfirmed != nil && apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (%v)", unconfirmed, err) //nolint:errorlint // or it would be a "not found"
	}
	return err
}

// GetByKey returns the object of inf that has the key, as
// cache.MetaNamespaceKeyFunc makes it. It must not be modified. If there is none, the
// error is a "not found", as apierrors.IsNotFound has it, if the state was confirmed
// before the call, and otherwise wraps ErrUnconfirmed. An object that cannot be read, or
// is no T, is another error.
func GetByKey[T any](inf cache.SharedInformer, key string) (T, error) {
	var found T
	err := Read(inf, func() error {
		obj, exists, err := inf.GetStore().GetByKey(key)
		switch {
		case err != nil:
			return fmt.Errorf("reading %s of %s: %w", key, nameOf(inf), err)
		case !exists:
			return notFound[T](inf, key)
		}
		var ok bool
		if found, ok = obj.(T); !ok {
			return fmt.Errorf("%s of %s is a %T, not a %s", key, nameOf(inf), obj, reflect.TypeFor[T]())
		}
		return nil
	})
	return found, err
}

// notFound says the same as a lister. The resource of an informer that is not known to
// have an identity is described by the type of its objects.
func notFound[T any](inf cache.SharedInformer, key string) error {
	resource := schema.GroupResource{Resource: reflect.TypeFor[T]().String()}
	if status, ok := StatusOf(inf); ok && status.Identity.Resource != "" {
		resource = schema.GroupResource{Group: status.Identity.Group, Resource: status.Identity.Resource}
	}
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		name = key
	}
	return apierrors.NewNotFound(resource, name)
}

// nameOf names an informer in an error.
func nameOf(inf cache.SharedInformer) string {
	if c, ok := inf.GetController().(controller); ok {
		return c.informer.name()
	}
	return fmt.Sprintf("%T", inf)
}
