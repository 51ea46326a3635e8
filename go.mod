module github.com/warmcache/warmcache

go 1.26.0
