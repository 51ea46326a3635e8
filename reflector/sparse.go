package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/internal/isnil"
)

// Sparse lets a list read metadata only, and of the objects only those that differ from
// what is stored: for collections of large objects. It is used when the server has
// forgotten the changes since the version that was read, and for nothing else: an object
// of the same UID and version is then taken to be the same object.
type Sparse struct {
	// Metadata lists the metadata of the collection.
	Metadata MetadataLister
	// Get reads one object at its current version.
	Get func(ctx context.Context, namespace, name string) (runtime.Object, error)
	// Stored returns what is stored under each of the keys, or zero references.
	Stored func(keys []string) ([]ObjectRef, error)
	// Size returns the number of stored objects, and their bytes.
	Size func() (objects, bytes int64)
}

const (
	// worthShare is the largest share of the objects' bytes that their metadata may
	// take, and worthBytes the least that a list must save.
	worthShare = 0.25
	worthBytes = 1 << 20
	// maxReads is how many objects may be read one by one, and maxReadShare the share
	// of those stored that may be, if that is more. Beyond that a list is quicker.
	maxReads     = 50
	maxReadShare = 0.02
	// parallelReads is how many are read at once.
	parallelReads = 8
)

// errNotSparse says that everything has to be listed.
var errNotSparse = errors.New("a list of metadata is not worthwhile")

// mayBeSparse reports whether it is worth a try to list metadata. If the newest object has
// gone, it may be in another history, in which equal versions are not equal objects.
func (r *Reflector) mayBeSparse() bool {
	if r.sparse == nil || !r.run.forgotten || r.run.notSparse {
		return false
	}
	_, bytes := r.sparse.Size()
	return bytes > worthBytes
}

// sparseList lists the metadata of the collection, and reads what differs.
func (r *Reflector) sparseList(ctx context.Context) error {
	l := &sparseList{Reflector: r, list: r.newReplacement(), ahead: map[string]string{}}
	defer l.list.Abort()
	rv, err := l.read(ctx)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Listed metadata", "type", r.description, "objects", l.listed, "read", l.reads)
	r.update(func(s *Status) { s.SparseLists++ }) // before anybody can see the list
	r.commit(l.list, rv)
	r.run.ahead = l.ahead
	return nil
}

// sparseList is one list of metadata.
type sparseList struct {
	*Reflector
	list Replacement
	// rv is the version of the list.
	rv string
	// listed counts the objects of the list, reads those that were read.
	listed, reads int64
	// ahead has the versions of objects that were read at a later one than rv.
	ahead map[string]string
}

func (l *sparseList) read(ctx context.Context) (rv string, err error) {
	options := metav1.ListOptions{Limit: pager.New(nil).PageSize}
	for {
		page, err := interruptible(ctx, func() (*metav1.PartialObjectMetadataList, error) { return l.sparse.Metadata.List(ctx, options) }, nil)
		if err != nil {
			return "", fmt.Errorf("listing the metadata of %s: %w", l.description, err)
		}
		if page == nil {
			return "", fmt.Errorf("%w: %w", errNotSparse, errBlank)
		}
		if options.Continue == "" {
			l.rv = page.ResourceVersion
			if !l.isWorthwhile(page.Items) {
				l.run.notSparse = true
				return "", errNotSparse
			}
		}
		if page.ResourceVersion != l.rv {
			return "", fmt.Errorf("%w: its pages are of different versions", errNotSparse)
		}
		if err := l.add(ctx, page.Items); err != nil {
			return "", err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return l.rv, nil
		}
	}
}

// isWorthwhile decides by the metadata of the first page.
func (l *sparseList) isWorthwhile(items []metav1.PartialObjectMetadata) bool {
	objects, bytes := l.sparse.Size()
	if objects == 0 || len(items) == 0 {
		return false
	}
	metadata := 0
	for i := range items {
		metadata += items[i].Size()
	}
	each := float64(metadata) / float64(len(items))
	stored := float64(bytes) / float64(objects)
	return each <= worthShare*stored && (stored-each)*float64(objects) >= worthBytes
}

// add adds a page to the list.
func (l *sparseList) add(ctx context.Context, items []metav1.PartialObjectMetadata) error {
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = cache.MetaObjectToName(&items[i]).String()
	}
	stored, err := l.sparse.Stored(keys)
	if err != nil {
		return fmt.Errorf("%w: what is stored cannot be compared: %w", errNotSparse, err)
	}
	objs := make([]runtime.Object, len(items))
	var differing []int
	for i := range items {
		if refOf(&items[i]) != stored[i] || isUnversioned(stored[i].RV) {
			differing = append(differing, i)
		}
		if string(items[i].UID) == stored[i].UID && precedes(items[i].ResourceVersion, stored[i].RV) {
			// Then equal versions may be of other objects, too.
			return fmt.Errorf("%w: %s%s is at resourceVersion %s, was at %s",
				errNotSparse, otherHistory, keys[i], items[i].ResourceVersion, stored[i].RV)
		}
	}
	l.listed += int64(len(items))
	l.reads += int64(len(differing))
	objects, _ := l.sparse.Size()
	if l.reads > max(maxReads, int64(maxReadShare*float64(objects))) {
		return fmt.Errorf("%w: too many objects have changed", errNotSparse)
	}
	if err := l.get(ctx, items, differing, objs); err != nil {
		return err
	}
	for _, i := range differing {
		if err := checkRead(&items[i], keys[i], objs[i]); err != nil {
			return err
		}
	}
	for i := range items {
		if err := l.put(&items[i], keys[i], objs[i]); err != nil {
			return err
		}
	}
	return nil
}

// get reads the differing objects of a page into objs.
func (l *sparseList) get(ctx context.Context, items []metav1.PartialObjectMetadata, differing []int, objs []runtime.Object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := make(chan struct{}, parallelReads)
	var reads sync.WaitGroup
	for _, i := range differing {
		places <- struct{}{}
		reads.Go(func() {
			defer func() { <-places }()
			// Also after a panic: what was not read must not pass for unchanged.
			defer func() {
				if objs[i] == nil {
					cancel(fmt.Errorf("%w: %s was not read", errNotSparse, cache.MetaObjectToName(&items[i])))
				}
			}()
			defer utilruntime.HandleCrashWithContext(ctx)
			obj, err := interruptible(ctx, func() (runtime.Object, error) {
				return l.sparse.Get(ctx, items[i].Namespace, items[i].Name)
			}, nil)
			if err != nil {
				cancel(fmt.Errorf("reading %s: %w", cache.MetaObjectToName(&items[i]), err))
				return
			}
			if !isnil.Value(obj) {
				objs[i] = obj
			}
		})
	}
	reads.Wait()
	err := context.Cause(ctx)
	if apierrors.IsNotFound(err) {
		// The watch from the version of the list would tell of changes of an object
		// that is gone.
		return fmt.Errorf("%w: an object was deleted meanwhile: %w", errNotSparse, err)
	}
	return err
}

// checkRead returns an error if obj, which was read because its metadata was listed, is not
// a later state of the same object. The watch from the version of the list tells neither
// what an older one has become, nor, of an object that was replaced, anything that obj
// could be compared with.
func checkRead(item *metav1.PartialObjectMetadata, key string, obj runtime.Object) error {
	read := refOf(obj)
	if read.Key != key || read.UID != string(item.UID) || precedes(read.RV, item.ResourceVersion) {
		return fmt.Errorf("%w: %s was read as UID %s at resourceVersion %s, and listed as %s at %s",
			errNotSparse, key, read.UID, read.RV, item.UID, item.ResourceVersion)
	}
	return nil
}

// put adds one object to the list: obj, or else what is stored.
func (l *sparseList) put(item *metav1.PartialObjectMetadata, key string, obj runtime.Object) error {
	if obj == nil {
		l.seen(item, item.ResourceVersion)
		return l.listError(l.list.Keep(key, string(item.UID), item.ResourceVersion))
	}
	rv, err := l.accept(obj)
	if err != nil {
		return err
	}
	l.seen(obj, rv)
	if precedes(l.rv, rv) {
		l.ahead[key] = rv
	}
	return l.listError(l.list.Add(obj))
}

// isBehind reports whether an event is one that an object was already read past when
// its collection was listed by its metadata. A delete never is: the object was there when
// it was read, so that it has left what is selected, which reading it did not show. Should
// it have come back, what follows says so.
func (r *Reflector) isBehind(event watch.Event, rv string) bool {
	if len(r.run.ahead) == 0 {
		return false
	}
	key := refOf(event.Object).Key
	read, ok := r.run.ahead[key]
	if !ok {
		return false
	}
	if event.Type == watch.Deleted || precedes(read, rv) {
		delete(r.run.ahead, key)
		return false
	}
	return true
}
