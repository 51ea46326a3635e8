package informer_test

import "github.com/warmcache/warmcache/internal/apitest"

func faultNoBookmarks() apitest.Fault { return apitest.Fault{Verb: "watch", NoBookmarks: true} }
