package e2e

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What the author of a custom resource writes, or generates, for a typed client.

var (
	widgetsV1 = schema.GroupVersionResource{Group: "e2e.warmcache.dev", Version: "v1", Resource: "widgets"}
	widgetsV2 = schema.GroupVersionResource{Group: "e2e.warmcache.dev", Version: "v2", Resource: "widgets"}
)

// widget is version v1 of the custom resource of the tests, with all fields that
// any of its schemas has.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec widgetSpec `json:"spec,omitempty"`
}

type widgetSpec struct {
	Size   int64    `json:"size,omitempty"`
	Color  string   `json:"color,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

// withoutKind implements kindless. The server writes the kind of a custom resource
// into the items of a list, too. client-go's decoder clears it in the object at the
// top only: the list.
func (w *widget) withoutKind() any {
	c := w.deepCopy()
	c.TypeMeta = metav1.TypeMeta{}
	return c
}

type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []widget `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (w *widget) DeepCopyObject() runtime.Object { return w.deepCopy() }

func (w *widget) deepCopy() *widget {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Labels = append([]string(nil), w.Spec.Labels...)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *widgetList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]widget, 0, len(l.Items))
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].deepCopy())
	}
	return &c
}

// widgetV2 is version v2. Go types tell versions apart.
type widgetV2 struct{ widget }

// DeepCopyObject implements runtime.Object.
func (w *widgetV2) DeepCopyObject() runtime.Object { return &widgetV2{*w.deepCopy()} }

type widgetV2List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []widgetV2 `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *widgetV2List) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]widgetV2, 0, len(l.Items))
	for i := range l.Items {
		c.Items = append(c.Items, widgetV2{*l.Items[i].deepCopy()})
	}
	return &c
}

// widgetScheme has the types of the custom resource.
var widgetScheme = newWidgetScheme()

func newWidgetScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for version, types := range map[schema.GroupVersion][2]runtime.Object{
		widgetsV1.GroupVersion(): {&widget{}, &widgetList{}},
		widgetsV2.GroupVersion(): {&widgetV2{}, &widgetV2List{}},
	} {
		s.AddKnownTypeWithName(version.WithKind("Widget"), types[0])
		s.AddKnownTypeWithName(version.WithKind("WidgetList"), types[1])
		metav1.AddToGroupVersion(s, version)
	}
	return s
}

// exampleOf returns an empty object of a custom resource.
func exampleOf(resource schema.GroupVersionResource) (runtime.Object, error) {
	switch resource {
	case widgetsV1:
		return &widget{}, nil
	case widgetsV2:
		return &widgetV2{}, nil
	}
	return nil, fmt.Errorf("no type for %v", resource)
}
