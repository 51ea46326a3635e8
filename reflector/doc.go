// Package reflector reads a collection from the API server into a queue, as
// client-go's Reflector does, but can begin at the resourceVersion of a stored
// copy instead of with a list:
//
//	    start ── no stored version, or listing is cheaper ──────────────► LIST
//	      ▼
//	    PROBE   list with limit=1: the server's version now
//	      │ other cluster: forget the copy; other schema ───────────────► LIST
//	      │ lower than the stored version, or not comparable ───────────► LIST
//	      │ equal ──────────────────────────────────────────► CAUGHT UP
//	      ▼
//	    RESUME  watch from the stored version, asking the server to end it
//	      │     after 3 s, which makes it send a bookmark before
//	      │ event or bookmark at or past the probed version ► CAUGHT UP
//	      │ expired; contradiction found by the consumer ───────────────► LIST
//	      │ ended without proof: probe again, which moves the server's
//	      │ watch cache, and another round; 4 silent rounds, or 8
//	      │ that were cut off ──────────────────────────────────────────► LIST
//	      ▼
//	CAUGHT UP ◄────────────────────────────────────────────────────────── LIST
//	      ▼
//	    WATCH   until it expires or the consumer fails ─────────────────► LIST
//	            cut off or refused: probe; a lower version ─────────────► LIST
//	            five in a row failed, but not the probes ───────────────► LIST
//
// Promises:
//
//   - Events reach the queue in the order of the server, and the queue's mark
//     CaughtUp(true) only after everything that the server had when the
//     reflector started.
//   - A list reads at the server's current version, never at an older one. The one
//     exception is what the consumer says it has lost: that is listed at the version
//     at which it was lost, so that the watch from there tells what was deleted
//     since. If the server refuses, or answers five attempts with an error that does
//     not pass, the current state is listed instead, and the log says so.
//   - Errors that do not say that the version is unusable (connection lost, 429,
//     5xx, 401, 403, 404) are retried from where the watch was, with client-go's
//     backoff. client-go lists again after most of them. Only the fifth watch in a
//     row that fails, although the collection can be read and the server is not
//     busy, leads to a list: for servers that say something else when they mean that
//     a version has expired, and for collections that can be listed only.
//   - A watch goes on from where another ended only if the server is known to tell
//     what has happened since: if it gives versions, and has sent a bookmark or, for
//     which it is asked once, refuses one as too old. Otherwise the version is asked
//     for before, and the collection is listed if that has moved, or if there is none.
//   - An answer with neither a version nor objects is an error, not an empty
//     collection, if the stored copy, the last list or the page before had a
//     version: client-go decodes JSON of something else, as proxies send it, to
//     that.
//   - A server that has gone back in time is followed there, also while it is
//     watched. If it has passed the version that was read by the time it can be
//     reached again, the newest object that it has shown tells, unless that was there
//     in the same version, too.
//   - Watch error handlers are told what client-go tells them: lists that failed,
//     and watches that could not be opened, unless the server is busy or refuses
//     the connection. Status tells the rest.
//   - The pause between two attempts is client-go's, or what the server asks for
//     if that is longer.
//   - A link that is bad leads to no list, but for rounds that do not get the time for
//     a bookmark, eight in a row. A watch that breaks off is one that has ended: the
//     next one follows at once.
//   - No answer is waited for without end, but that to a list in pages. Rounds are
//     given up after 10 s, streamed lists that are silent after 30 s, watches half a
//     minute after their timeout, and requests without an answer after ten minutes.
//   - Stopping takes effect at once, also while a request is under way that knows no
//     context; what comes of it is thrown away.
//   - An object that cannot be queued, because of its type, its key or a failing
//     transform, leads to a list; the version never moves past it.
package reflector
