// Package audit compares what a cache holds with what the API server holds, from
// metadata alone.
//
// A watch that is resumed, or goes on for weeks, is believed: nothing in its protocol
// says that no event was lost on the way, and a server that was restored from a backup
// may have passed the version that it was resumed from. An audit finds out. It lists
// the metadata of the collection in pages, at a limited rate, and compares each page
// with the range of keys that it stands for:
//
//	listed, and stored with the same UID and version   verified, if its metadata is the same
//	stored with a version after the page's             newer, ignored
//	listed and not stored                              missing, unless deleted meanwhile
//	stored and not listed                              extra
//	anything else                                      different
//
// A page is of one version of the server, and the cache is of another. What agrees
// needs no explanation. For what does not, the audit waits until the cache has reached
// the version of the page, and compares again: what is left cannot be a matter of time.
// So a run never takes a change that is under way for a difference, and what it reports
// is there.
//
// What a run cannot decide ends it, with an error that says why, and is never counted
// as a difference. It also finds nothing in the parts of an object that are not
// metadata: two states with the same UID, version, generation, labels, annotations,
// owners, finalizers and managed fields count as the same. It changes nothing: who runs
// it decides what follows.
package audit
