package factory

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/tools/cache"
)

// generated is the factory as the generated accessors see it. What they pass to
// InformerFor is known: a function that lists with this factory's client,
// namespace and tweak, and indexes by namespace. The factory does the same
// itself and persists it, which is why the function is used only for a type
// that the clientset does not resolve.
//
// A function that a user passes to Factory.InformerFor may select or index
// differently, and cannot be looked into. Only this type tells the two apart.
type generated struct{ *Factory }

// InformerFor implements internalinterfaces.SharedInformerFactory.
func (g generated) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if _, err := clientsetResources().resourceFor(reflect.TypeOf(obj)); err != nil {
		return g.Factory.InformerFor(obj, newFunc)
	}
	return g.Factory.InformerFor(obj, nil)
}

// group builds the accessors of one API group.
func group[T any](f *Factory, build func(internalinterfaces.SharedInformerFactory, string, internalinterfaces.TweakListOptionsFunc) T) T {
	return build(generated{f}, f.config.namespace, f.config.tweak)
}

// Admissionregistration gives access to the informers of admissionregistration.k8s.io.
func (f *Factory) Admissionregistration() admissionregistration.Interface {
	return group(f, admissionregistration.New)
}

// Internal gives access to the informers of internal.apiserver.k8s.io.
func (f *Factory) Internal() apiserverinternal.Interface { return group(f, apiserverinternal.New) }

// Apps gives access to the informers of apps.
func (f *Factory) Apps() apps.Interface { return group(f, apps.New) }

// Autoscaling gives access to the informers of autoscaling.
func (f *Factory) Autoscaling() autoscaling.Interface { return group(f, autoscaling.New) }

// Batch gives access to the informers of batch.
func (f *Factory) Batch() batch.Interface { return group(f, batch.New) }

// Certificates gives access to the informers of certificates.k8s.io.
func (f *Factory) Certificates() certificates.Interface { return group(f, certificates.New) }

// Coordination gives access to the informers of coordination.k8s.io.
func (f *Factory) Coordination() coordination.Interface { return group(f, coordination.New) }

// Core gives access to the informers of the core group.
func (f *Factory) Core() core.Interface { return group(f, core.New) }

// Discovery gives access to the informers of discovery.k8s.io.
func (f *Factory) Discovery() discovery.Interface { return group(f, discovery.New) }

// Events gives access to the informers of events.k8s.io.
func (f *Factory) Events() events.Interface { return group(f, events.New) }

// Extensions gives access to the informers of extensions.
func (f *Factory) Extensions() extensions.Interface { return group(f, extensions.New) }

// Flowcontrol gives access to the informers of flowcontrol.apiserver.k8s.io.
func (f *Factory) Flowcontrol() flowcontrol.Interface { return group(f, flowcontrol.New) }

// Lifecycle gives access to the informers of lifecycle.k8s.io.
func (f *Factory) Lifecycle() lifecycle.Interface { return group(f, lifecycle.New) }

// Networking gives access to the informers of networking.k8s.io.
func (f *Factory) Networking() networking.Interface { return group(f, networking.New) }

// Node gives access to the informers of node.k8s.io.
func (f *Factory) Node() node.Interface { return group(f, node.New) }

// Policy gives access to the informers of policy.
func (f *Factory) Policy() policy.Interface { return group(f, policy.New) }

// Rbac gives access to the informers of rbac.authorization.k8s.io.
func (f *Factory) Rbac() rbac.Interface { return group(f, rbac.New) }

// Resource gives access to the informers of resource.k8s.io.
func (f *Factory) Resource() resource.Interface { return group(f, resource.New) }

// Scheduling gives access to the informers of scheduling.k8s.io.
func (f *Factory) Scheduling() scheduling.Interface { return group(f, scheduling.New) }

// Storage gives access to the informers of storage.k8s.io.
func (f *Factory) Storage() storage.Interface { return group(f, storage.New) }

// Storagemigration gives access to the informers of storagemigration.k8s.io.
func (f *Factory) Storagemigration() storagemigration.Interface {
	return group(f, storagemigration.New)
}
