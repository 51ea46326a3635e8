package warmcache
