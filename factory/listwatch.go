package factory

import (
	"context"
	"errors"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
)

// caller lists and watches one resource as generated code would. It goes through
// the clientset's accessors for each request, so that a clientset that changes
// what they return is obeyed.
type caller struct {
	clientset any
	resource  apiResource
	namespace string
	tweak     internalinterfaces.TweakListOptionsFunc
}

// listerWatcher wraps c the way generated informers do: whether the client knows
// WatchList (fakes do not) stays visible.
func (c caller) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  c.list,
		WatchFuncWithContext: c.watch,
	}, c.clientset)
}

func (c caller) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	client := c.client()
	applyTweak(c.tweak, &opts)
	out := client.MethodByName("List").Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(opts)})
	if err, failed := out[1].Interface().(error); failed {
		// Clients return an empty list along with an error. It must not be
		// mistaken for what the server holds.
		return nil, err
	}
	return out[0].Interface().(runtime.Object), nil
}

// get reads one object.
func (c caller) get(ctx context.Context, namespace, name string) (runtime.Object, error) {
	c.namespace = namespace
	args := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(name), reflect.ValueOf(metav1.GetOptions{})}
	out := c.client().MethodByName("Get").Call(args)
	if err, failed := out[1].Interface().(error); failed {
		return nil, err
	}
	return out[0].Interface().(runtime.Object), nil
}

func (c caller) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	client := c.client()
	applyTweak(c.tweak, &opts)
	return client.Interface().(watcher).Watch(ctx, opts)
}

// applyTweak applies tweak to opts. What opts select by field, which is how a reflector
// asks for one object, is selected in addition to what tweak selects: most tweaks set
// their selector in place of what is there.
func applyTweak(tweak internalinterfaces.TweakListOptionsFunc, opts *metav1.ListOptions) {
	if tweak == nil {
		return
	}
	asked := opts.FieldSelector
	opts.FieldSelector = ""
	tweak(opts)
	if asked != "" && opts.FieldSelector != "" {
		asked = "," + asked
	}
	opts.FieldSelector += asked
}

// client calls the two accessors that lead to the client of the resource.
func (c caller) client() reflect.Value {
	var args []reflect.Value
	if c.resource.namespaced {
		args = []reflect.Value{reflect.ValueOf(c.namespace)}
	}
	group := reflect.ValueOf(c.clientset).MethodByName(c.resource.group).Call(nil)[0]
	return group.MethodByName(c.resource.accessor).Call(args)[0]
}

// selection is what a tweak of the list options selects, as it goes into an
// identity.
type selection struct {
	labels, fields string
}

// selectionOf applies tweak to empty options and returns what it selects, in
// canonical form. It returns an error if that is not all the tweak does to the
// result of a request: such a collection has no identity. The error wraps
// ErrInvalidOptions if a server would refuse the selection, too.
func selectionOf(tweak internalinterfaces.TweakListOptionsFunc) (s selection, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = invalid("WithTweakListOptions: the tweak panics when it is given empty options: %v", r)
		}
	}()
	var opts metav1.ListOptions
	if tweak != nil {
		tweak(&opts)
	}
	byLabel, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return selection{}, invalid("WithTweakListOptions: label selector %q: %w", opts.LabelSelector, err)
	}
	byField, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return selection{}, invalid("WithTweakListOptions: field selector %q: %w", opts.FieldSelector, err)
	}
	opts.LabelSelector, opts.FieldSelector = "", ""
	// These say how the objects travel, not which.
	opts.Limit, opts.TimeoutSeconds, opts.AllowWatchBookmarks = 0, nil, false
	if opts != (metav1.ListOptions{}) {
		return selection{}, errors.New("list options are tweaked beyond selectors, limit and timeout: " + opts.String())
	}
	return selection{labels: byLabel.String(), fields: byField.String()}, nil
}
