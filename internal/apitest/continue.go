package apitest

import (
	"context"
	"encoding/base64"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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

// nextPage goes on where the token says. A negative version in it means the
// latest state, at the price of consistency: see expiredContinue.
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
