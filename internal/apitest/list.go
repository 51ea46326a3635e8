package apitest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// listOptions reads the query as kube-apiserver does: its defaults, its
// validation, and a name in the path as a field selector.
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
	if r.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", r.name)
	}
	return opts, nil
}

// parseRV reads a resourceVersion; empty is 0.
func parseRV(rv string) (uint64, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v",
			field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())))
	}
	return n, nil
}

// scope is what a list or watch selects.
type scope struct {
	prefix string // of keys
	opts   *internalversion.ListOptions
}

func scopeOf(r *request, opts *internalversion.ListOptions) scope {
	sc := scope{opts: opts}
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

// page is one answer to a list.
type page struct {
	rows []*record
	meta metav1.ListMeta
}

func (s *Server) list(w *response) error {
	f, err := formOf(w.request)
	if err != nil {
		return err
	}
	opts, err := s.listOptions(w.request)
	if err != nil {
		return err
	}
	p, err := s.page(w.Context(), w.table, scopeOf(w.request, opts))
	if err != nil {
		return err
	}
	w.entry.change(func(r *Request) { r.Items = len(p.rows) })
	w.Header().Set("Content-Type", f.contentType())
	w.WriteHeader(http.StatusOK)
	buffered := bufio.NewWriterSize(w, 64<<10)
	err = encodeList(buffered, f, w.table.res, p.meta, p.rows)
	return w.broken(errors.Join(err, buffered.Flush()))
}

// broken cuts the connection if an answer cannot be completed, because it is
// too late for a Status.
func (w *response) broken(err error) error {
	if err != nil && w.Context().Err() == nil {
		w.cut()
	}
	return nil
}

// page decides which state of the table a list returns.
func (s *Server) page(ctx context.Context, t *table, sc scope) (page, error) {
	rv, err := parseRV(sc.opts.ResourceVersion)
	if err != nil {
		return page{}, err
	}
	if sc.opts.Continue != "" {
		return s.nextPage(ctx, t, sc, rv)
	}
	exact := sc.opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		sc.opts.ResourceVersionMatch == "" && sc.opts.Limit > 0 && rv > 0
	switch {
	case exact:
		return s.exactPage(ctx, t, sc, rv, "")
	case sc.opts.ResourceVersion == "":
		rows, current := s.storage.latest(t)
		return makePage(sc, rows, current, ""), nil
	}
	if err := s.waitFor(ctx, t, rv); err != nil {
		return page{}, err
	}
	rows, current := s.storage.cached(t)
	return makePage(sc, rows, current, ""), nil
}

func (s *Server) exactPage(ctx context.Context, t *table, sc scope, rv uint64, from string) (page, error) {
	if err := s.waitFor(ctx, t, rv); err != nil {
		return page{}, err
	}
	rows, err := s.storage.at(t, rv)
	if err != nil {
		return page{}, err
	}
	return makePage(sc, rows, rv, from), nil
}

// progressInterval is how often a waiting request asks etcd for its version.
const progressInterval = 100 * time.Millisecond

// waitFor waits until the watch cache of t has reached rv, and gives up with
// "Too large resource version".
func (s *Server) waitFor(ctx context.Context, t *table, rv uint64) error {
	deadline := s.opts.Clock.Now().Add(s.opts.FreshTimeout)
	for {
		current, changed := s.storage.reach(t, rv)
		if current >= rv {
			return nil
		}
		left := deadline.Sub(s.opts.Clock.Now())
		if left <= 0 || ctx.Err() != nil {
			return tooLarge(rv, current)
		}
		s.sleep(ctx, min(left, progressInterval), changed)
	}
}

func tooLarge(rv, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// makePage selects from rows, which are the state at rv, beginning at key from.
func makePage(sc scope, rows []*record, rv uint64, from string) page {
	p := page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(rv, 10)}}
	rows = sc.within(rows, from)
	limit := int(sc.opts.Limit)
	if sc.opts.ResourceVersion == "0" {
		limit = 0 // ignored, as by a watch cache
	}
	for i, row := range rows {
		if !sc.matches(row) {
			continue
		}
		p.rows = append(p.rows, row)
		if limit == 0 || len(p.rows) < limit {
			continue
		}
		if i < len(rows)-1 {
			p.more(sc, rv, row.key, len(rows)-limit)
		}
		break
	}
	return p
}

// more marks the page as not the last. remaining counts objects before
// selection, so it is told only when nothing is selected.
func (p *page) more(sc scope, rv uint64, lastKey string, remaining int) {
	p.meta.Continue = encodeContinue(int64(rv), lastKey+"\x00")
	if sc.everything() {
		n := int64(remaining)
		p.meta.RemainingItemCount = &n
	}
}

// continueToken has the fields of kube-apiserver's, because tests may look
// inside.
type continueToken struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"`
	Start   string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func encodeContinue(rv int64, start string) string {
	// A struct of strings and a number always marshals.
	b, _ := json.Marshal(continueToken{Version: continueVersion, RV: rv, Start: start})
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeContinue(token string) (continueToken, error) {
	var c continueToken
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.Version != continueVersion || c.RV == 0 || c.Start == "" {
		return c, apierrors.NewBadRequest("invalid continue token: continue key is not valid")
	}
	return c, nil
}

func (s *Server) nextPage(ctx context.Context, t *table, sc scope, rv uint64) (page, error) {
	token, err := decodeContinue(sc.opts.Continue)
	if err != nil {
		return page{}, err
	}
	if rv != 0 {
		return page{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if token.RV < 0 {
		rows, current := s.storage.latest(t)
		return makePage(sc, rows, current, token.Start), nil
	}
	p, err := s.exactPage(ctx, t, sc, uint64(token.RV), token.Start)
	if apierrors.IsResourceExpired(err) {
		return p, expiredContinue(token.Start)
	}
	return p, err
}

// expiredContinue offers a token that goes on with the latest state instead.
func expiredContinue(start string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the rest, inconsistently.")
	err.ErrStatus.Continue = encodeContinue(-1, start)
	return err
}
