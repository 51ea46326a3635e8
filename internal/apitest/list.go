package apitest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page is one answer to a list.
type page struct {
	rows []*record
	meta metav1.ListMeta
}

// list streams its answer, because a Kubernetes list can be larger than what one
// likes to hold in memory twice.
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

// page decides which state of the table a list returns:
//
//   - with a continue token, that of the first page;
//   - with a version to match exactly, or a limit and a version other than 0
//     (the older way to ask for the same), that of the version;
//   - without a version, the latest;
//   - else what the watch cache has, once it has reached the version.
func (s *Server) page(ctx context.Context, t *table, sc scope) (page, error) {
	rv, err := t.res.aggregated.version(sc.opts.ResourceVersion)
	if err != nil {
		return page{}, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if sc.opts.Continue != "" {
		return s.nextPage(ctx, t, sc, rv)
	}
	exact := sc.opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		sc.opts.ResourceVersionMatch == "" && sc.opts.Limit > 0 && rv > 0
	switch {
	case exact:
		return s.exactPage(ctx, t, sc, rv, "")
	case sc.opts.ResourceVersion == "" || t.res.aggregated.NoReplay:
		rows, current := s.storage.latest(t)
		return makePage(sc, rows, current, ""), nil
	}
	if err := s.waitFor(ctx, t, rv); err != nil {
		return page{}, err
	}
	rows, current := s.storage.cached(t)
	return makePage(sc, rows, current, ""), nil
}

// exactPage is the state at rv, from key from on.
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

// tooLarge tells the client when to ask again; client-go does so by itself.
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
	p := page{meta: metav1.ListMeta{ResourceVersion: sc.aggregated.Lists.format(rv, 0)}}
	rows = sc.within(rows, from)
	limit := int(sc.opts.Limit)
	if sc.opts.ResourceVersion == "0" || sc.aggregated.NoLimit {
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
	p.rows = sc.aggregated.shuffle(p.rows, rv)
	return p
}
