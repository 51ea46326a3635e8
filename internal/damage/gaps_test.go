package damage

// knownGap names the gap in what the file format can tell that explains why
// contents were read which no commit has left; empty if none does. The campaigns
// count them. An entry goes when its gap does.
//
//   - A page of an earlier commit that comes back under an open file, and holds a
//     whole collection, is what the next commit goes on from.
func (m *member) knownGap() string {
	if m.older {
		return "earlier pages came back under an open file"
	}
	return ""
}
