package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/factory"
	"github.com/warmcache/warmcache/informer"
	"github.com/warmcache/warmcache/internal/meter"
	"github.com/warmcache/warmcache/store/bolt"
)

// subject is the informer under observation.
type subject struct {
	factory      informers.SharedInformerFactory
	informer     cache.SharedIndexInformer
	recorder     *recorder
	registration cache.ResourceEventHandlerRegistration
	traffic      *meter.Traffic
}

// newSubject returns an informer that has not started. stop, to be called after
// ctx has ended, waits until it has ended, too, and closes its file.
func newSubject(ctx context.Context, spec *childSpec) (s *subject, stop func(), err error) {
	config, err := spec.config()
	if err != nil {
		return nil, nil, err
	}
	what := kindFor(spec.Host != "")
	s = &subject{recorder: newRecorder(), traffic: meter.Attach(config, what.gvr.Resource)}
	if s.factory, stop, err = spec.newFactory(ctx, config); err != nil {
		return nil, nil, err
	}
	s.informer = what.informer(s.factory)
	if s.registration, err = s.informer.AddEventHandler(s.recorder); err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// sync starts the informer and waits until the handler has returned from the
// whole initial state.
func (s *subject) sync(ctx context.Context) error {
	s.factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", s.registration.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	return nil
}

const (
	// settlePoll is short because the heap is measured until the end.
	settlePoll = 5 * time.Millisecond
	// settleLimit is far more than a healthy server and disk need.
	settleLimit = time.Minute
)

// settle waits until there is nothing left to wait for. A handler that still does
// not know what the cache holds when the time is over has missed it, which is for
// the parent to find; that the rest does not come is an error.
func (s *subject) settle(ctx context.Context) error {
	deadline := time.Now().Add(settleLimit)
	for {
		pending, err := s.pending()
		switch {
		case err != nil || pending == "":
			return err
		case time.Now().Before(deadline):
		case pending == pendingHandler:
			return nil
		default:
			return fmt.Errorf("waited %s for %s in vain", settleLimit, pending)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(settlePoll):
		}
	}
}

// What pending may return.
const (
	pendingProof   = "the proof that the stored objects are current"
	pendingDisk    = "the changes to reach the disk"
	pendingHandler = "the handler to learn what the cache holds"
)

// pending says what is still to come, or nothing. The last is all that can be
// asked of client-go.
func (s *subject) pending() (string, error) {
	status, ours := informer.StatusOf(s.informer)
	switch {
	case !ours:
	case !status.Persistent || status.Durability.Err != nil:
		return "", errors.Join(errors.New("changes are not being written to the file"), status.Durability.Err)
	case !status.Confirmed:
		return pendingProof, nil
	case status.PersistedRV != status.RV || status.Durability.Pending > 0:
		return pendingDisk, nil
	}
	if !s.recorder.knows(s.informer.GetStore().List()) {
		return pendingHandler, nil
	}
	return "", nil
}

// cached describes what the indexer holds.
func (s *subject) cached() state {
	cached := state{}
	for _, obj := range s.informer.GetStore().List() {
		key, v := keyAndVersion(obj)
		cached[key] = v
	}
	return cached
}

// report says all but what only the process knows.
func (s *subject) report() *childReport {
	r := &childReport{Cached: s.cached()}
	r.Lists, r.Probes, r.BytesReceived = s.traffic.Lists(), s.traffic.Probes(), s.traffic.BytesReceived()
	s.recorder.fill(r)
	status, ours := informer.StatusOf(s.informer)
	if !ours {
		return r
	}
	r.PersistedRV, r.Outcome = status.PersistedRV, outcomeResumed
	if status.Lists > 0 {
		r.Outcome = "listed: " + status.ListReason
	}
	return r
}

// config leads to the server of the parent, with the credentials of the user.
func (s *childSpec) config() (*rest.Config, error) {
	if s.Host != "" {
		return clientConfig(&rest.Config{Host: s.Host}), nil
	}
	config, err := loadKubeconfig(s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return clientConfig(config), nil
}

// newFactory returns client-go's factory or ours, which differ in nothing else.
// stop ends it after ctx has ended.
func (s *childSpec) newFactory(ctx context.Context, config *rest.Config) (f informers.SharedInformerFactory, stop func(), err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	if s.File == "" {
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Namespace))
		return f, f.Shutdown, nil
	}
	db, err := bolt.Open(s.File, bolt.Options{})
	if err != nil {
		return nil, nil, err
	}
	policy := informer.Confirmed
	if s.Resumed {
		policy = informer.Resumed
	}
	ours, err := factory.New(client, db,
		factory.WithNamespace(s.Namespace),
		factory.WithStartPolicy(policy),
		// A handful of objects would be listed, which is quicker and would
		// show nothing.
		factory.WithListBelow(-1),
	)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return ours, func() {
		ours.Shutdown()
		if err := db.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Closing the file")
		}
	}, nil
}
