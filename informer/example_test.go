package informer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/store"
)

// podsInformer returns an informer of one pod. In a controller the factory has a file,
// and the policy informer.Stale.
func podsInformer() (pods cache.SharedIndexInformer, start func(context.Context), err error) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}})
	var db store.Store
	f, err := factory.New(client, db)
	if err != nil {
		return nil, nil, err
	}
	return f.Core().V1().Pods().Informer(), f.StartWithContext, nil
}

// A controller deletes what it has made for a pod that is gone, but only if the pod is
// gone for certain.
func ExampleGetByKey() {
	pods, start, err := podsInformer()
	if err != nil {
		fmt.Println(err)
		return
	}
	reconcile := func(key string) error {
		pod, err := informer.GetByKey[*corev1.Pod](pods, key)
		switch {
		case apierrors.IsNotFound(err):
			fmt.Println(key, "is gone: cleaning up")
			return nil
		case errors.Is(err, informer.ErrUnconfirmed):
			fmt.Println(key, "may exist: to be tried again")
			return err // the workqueue tries again
		case err != nil:
			return err
		}
		fmt.Println(pod.Name, "exists")
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = reconcile("web/shop")
	start(ctx)
	<-informer.ConfirmedChecker(pods).Done()
	_ = reconcile("web/shop")
	_ = reconcile("web/other")
	// Output:
	// web/shop may exist: to be tried again
	// shop exists
	// web/other is gone: cleaning up
}

// Read makes the "not found" of a lister certain, or of anything else that reads an
// object from the informer. With controller-runtime the function is
//
//	func() error { return mgr.GetClient().Get(ctx, request.NamespacedName, pod) }
func ExampleRead() {
	pods, _, err := podsInformer()
	if err != nil {
		fmt.Println(err)
		return
	}
	lister := corelisters.NewPodLister(pods.GetIndexer())
	var pod *corev1.Pod
	err = informer.Read(pods, func() (err error) {
		pod, err = lister.Pods("web").Get("shop")
		return err
	})
	fmt.Println("found:", err == nil && pod.Name == "shop")
	fmt.Println("gone:", apierrors.IsNotFound(err))
	fmt.Println("not known yet:", errors.Is(err, informer.ErrUnconfirmed))
	// Output:
	// found: false
	// gone: false
	// not known yet: true
}

// A sweep deletes what belongs to no pod. What is not in a list may exist, too, unless
// the informer is confirmed before it is read.
func ExampleCheckConfirmed() {
	pods, start, err := podsInformer()
	if err != nil {
		fmt.Println(err)
		return
	}
	lister := corelisters.NewPodLister(pods.GetIndexer())
	sweep := func() error {
		if err := informer.CheckConfirmed(pods); err != nil {
			return err
		}
		all, err := lister.List(labels.Everything())
		if err != nil {
			return err
		}
		fmt.Println("deleting what belongs to none of", len(all), "pods")
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fmt.Println(errors.Is(sweep(), informer.ErrUnconfirmed))
	start(ctx)
	if cache.WaitFor(ctx, "pods", informer.ConfirmedChecker(pods)) {
		err = sweep()
	}
	fmt.Println(err)
	// Output:
	// true
	// deleting what belongs to none of 1 pods
	// <nil>
}

// What was not found in an unconfirmed state is looked at again as soon as it means
// something.
func ExampleConfirmedChecker() {
	pods, start, err := podsInformer()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	again := make(chan string, 1) // in a controller, the workqueue
	var waiting sync.WaitGroup
	waiting.Go(func() {
		// It returns false if ctx ends before: an informer that stops is never confirmed.
		if cache.WaitFor(ctx, "pods", informer.ConfirmedChecker(pods)) {
			again <- "web/other"
		}
	})
	start(ctx)
	_, err = informer.GetByKey[*corev1.Pod](pods, <-again)
	fmt.Println("gone:", apierrors.IsNotFound(err))
	waiting.Wait()
	// Output:
	// gone: true
}
