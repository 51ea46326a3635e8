package apitest

import (
	"net/http"
	"sort"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// listOptions reads the query with the defaults and the validation of
// kube-apiserver.
func (s *Server) listOptions(r *request) (*internalversion.ListOptions, error) {
	opts := &internalversion.ListOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(opts, !s.opts.NoWatchList)
	if errs := validation.ValidateListOptions(opts, !s.opts.NoWatchList); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if err := checkFieldSelector(r.table.res, opts.FieldSelector); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return opts, r.table.res.aggregated.accept(r, opts)
}

// parseRV reads a resourceVersion; empty is 0. The error is for a list to wrap;
// kube-apiserver lets it become a 500 everywhere else.
func parseRV(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusInternalServerError,
			Message: field.Invalid(field.NewPath("resourceVersion"), rv, err.Error()).Error(),
		}}
	}
	return n, nil
}

// scope is what a list or watch selects.
type scope struct {
	prefix     string // of keys
	opts       *internalversion.ListOptions
	aggregated Aggregated
}

func scopeOf(r *request, opts *internalversion.ListOptions) scope {
	sc := scope{opts: opts, aggregated: r.table.res.aggregated}
	if r.namespace != "" {
		sc.prefix = r.namespace + "/"
	}
	return sc
}

// everything says that no selector is set; the namespace is not a selector.
func (sc scope) everything() bool {
	return (sc.opts.LabelSelector == nil || sc.opts.LabelSelector.Empty()) &&
		(sc.opts.FieldSelector == nil || sc.opts.FieldSelector.Empty())
}

func (sc scope) matches(rec *record) bool {
	if rec == nil || len(rec.key) < len(sc.prefix) || rec.key[:len(sc.prefix)] != sc.prefix {
		return false
	}
	return (sc.opts.LabelSelector == nil || sc.opts.LabelSelector.Matches(rec.labels)) &&
		(sc.opts.FieldSelector == nil || sc.opts.FieldSelector.Matches(rec.fields))
}

// within cuts rows, which are ordered, to the prefix and to keys >= from.
func (sc scope) within(rows []*record, from string) []*record {
	from = max(from, sc.prefix)
	start := sort.Search(len(rows), func(i int) bool { return rows[i].key >= from })
	rows = rows[start:]
	if sc.prefix == "" {
		return rows
	}
	end := sc.prefix[:len(sc.prefix)-1] + "0" // '0' follows '/'
	return rows[:sort.Search(len(rows), func(i int) bool { return rows[i].key >= end })]
}
