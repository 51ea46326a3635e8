package apitest_test

import (
	"testing"

	"github.com/warmcache/warmcache/internal/apitest"
	"github.com/warmcache/warmcache/internal/apitest/contract"
)

func TestServer_KeepsContract(t *testing.T) {
	for name, opts := range map[string]apitest.Options{
		"HTTP":  {},
		"HTTPS": {TLS: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.CustomResources = []apitest.CustomResource{apitest.Widgets}
			srv, err := apitest.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { srv.Close() })
			kind := apitest.Widgets.GVR.GroupVersion().WithKind(apitest.Widgets.Kind)
			contract.Run(t, contract.Target{
				Config:               srv.RESTConfig(),
				Namespace:            "contract",
				CustomResource:       &kind,
				CustomResourcePlural: apitest.Widgets.GVR.Resource,
				ForgetHistory:        func(*testing.T) { srv.Compact() },
			})
		})
	}
}
