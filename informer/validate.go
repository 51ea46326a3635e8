package informer

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/warmcache/warmcache/indexer"
	"github.com/warmcache/warmcache/internal/isnil"
	"github.com/warmcache/warmcache/store"
)

// validate reports the first thing that cannot be meant, as an error that wraps
// ErrInvalidOptions and names it.
func validate(lw cache.ListerWatcher, example runtime.Object, o Options) error {
	switch {
	case isnil.Value(lw):
		return invalid("the ListerWatcher is nil")
	case o.ResyncPeriod < 0:
		return invalid("ResyncPeriod %s is negative", o.ResyncPeriod)
	case o.DepartedRetention < 0:
		return invalid("DepartedRetention %s is negative", o.DepartedRetention)
	}
	if err := o.Start.Validate(); err != nil {
		return invalid("Start: %w", err)
	}
	if err := validateAudit(o); err != nil {
		return err
	}
	for name, index := range o.Indexers {
		switch {
		case index == nil:
			return invalid("Indexers: the function of index %q is nil", name)
		case name == "" || len(name) > store.MaxKeyLength:
			return invalid("Indexers: a name has %d bytes, it must have 1 to %d", len(name), store.MaxKeyLength)
		}
	}
	if err := indexer.ValidateResidency(o.Residency, o.MemoryBudget); err != nil {
		return invalid("Residency, MemoryBudget: %w", err)
	}
	if o.Store == nil {
		if o.Residency == Disk {
			return invalid("Residency: Disk needs a Store; open one, or leave Residency out")
		}
		return nil
	}
	return validatePersistence(example, o)
}

func validateAudit(o Options) error {
	switch {
	case o.Metadata != nil && isnil.Value(o.Metadata):
		return invalid("Metadata is a nil %T; leave it out", o.Metadata)
	case o.Audit.Period < 0 || o.Audit.Rate < 0:
		return invalid("Audit: Period %s, Rate %d: neither may be negative", o.Audit.Period, o.Audit.Rate)
	case o.Audit.Period == 0 && o.Audit.Rate != 0:
		return invalid("Audit: a Rate without a Period audits nothing")
	case o.Audit.Period > 0 && o.Metadata == nil:
		return invalid("Audit needs Metadata, which lists what it compares")
	}
	return nil
}

func validatePersistence(example runtime.Object, o Options) error {
	switch {
	case isnil.Value(o.Store):
		return invalid("Store is a nil %T; leave it out to work in memory", o.Store)
	case isnil.Value(example):
		return invalid("Store needs an example object, which says what it is to hold")
	case o.Identify != nil && o.Identity != (store.Identity{}):
		return invalid("Identity and Identify are both set")
	case o.Identify != nil:
		return nil
	case o.Identity.Form != "" && o.Identity.Form != formOf(example):
		return invalid("Identity.Form is %q, but a %T is %q", o.Identity.Form, example, formOf(example))
	}
	if err := identityOf(o.Identity, example).Validate(); err != nil {
		return invalid("Identity: %w", err)
	}
	return validateSelectors(o.Identity)
}

// validateSelectors insists on one spelling, because another one would be another
// collection.
func validateSelectors(id store.Identity) error {
	byLabel, err := labels.Parse(id.LabelSelector)
	switch {
	case err != nil:
		return invalid("Identity.LabelSelector: %w", err)
	case byLabel.String() != id.LabelSelector:
		return invalid("Identity.LabelSelector %q is spelled %q", id.LabelSelector, byLabel)
	}
	byField, err := fields.ParseSelector(id.FieldSelector)
	switch {
	case err != nil:
		return invalid("Identity.FieldSelector: %w", err)
	case byField.String() != id.FieldSelector:
		return invalid("Identity.FieldSelector %q is spelled %q", id.FieldSelector, byField)
	}
	return nil
}

// holdsSecrets says whether an informer would write Secrets. Its example counts as
// much as its identity, which may be a mistake. So does their metadata: kubectl apply
// writes all of a Secret into an annotation.
func holdsSecrets(id store.Identity, example runtime.Object) bool {
	kind := example.GetObjectKind().GroupVersionKind().GroupKind()
	_, typed := example.(*corev1.Secret)
	return typed || kind == (schema.GroupKind{Kind: "Secret"}) || isOfSecrets(id)
}

func isOfSecrets(id store.Identity) bool { return id.Group == "" && id.Resource == "secrets" }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidOptions, fmt.Errorf(format, args...))
}

// identityOf completes an identity.
func identityOf(id store.Identity, example runtime.Object) store.Identity {
	if id.Form == "" {
		id.Form = formOf(example)
	}
	return id
}

func formOf(example runtime.Object) store.Form {
	switch example.(type) {
	case *unstructured.Unstructured:
		return store.FormUnstructured
	case *metav1.PartialObjectMetadata:
		return store.FormMetadata
	}
	return store.FormTyped
}
