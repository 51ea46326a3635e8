package damage

import (
	"maps"

	"github.com/warmcache/warmcache/store"
)

// knownGap names the gap in what the file format can tell that explains why
// contents were read which no commit has left; empty if none does. The campaigns
// count them. An entry goes when its gap does.
//
//   - A header that is lost by its key or bucket, while its totals are not, looks
//     like one that was never written, and objects without a header are served.
//   - A page of an earlier commit that comes back under an open file, and holds a
//     whole collection, is what the next commit goes on from.
//   - Departed records are in no sum that readers compare: one that is lost, or
//     that a lost write has brought back, is not missed.
func (m *member) knownGap(found contents) string {
	if m.older {
		return "earlier pages came back under an open file"
	}
	for _, m := range m.may[m.name] {
		if !maps.Equal(m.Objects, found.Objects) {
			continue
		}
		if sameHeader(m.Header, found.Header) {
			return "departed records are not those of the commit"
		}
		if sameHeader(store.Header{}, found.Header) {
			return "header is missing, objects are served"
		}
	}
	return ""
}
