package main

// mistakes returns the keys that a child's handler or cache does not have right.
//
// want is what the server has. before is what the handler of the process before
// it knew, and deleted what was deleted since then. A handler knows what its
// predecessor knew, minus what it was told the end of, plus what it was told:
// this is what a controller with state of its own outside the process relies on.
func mistakes(want state, r *childReport, before state, deleted []instance) map[string]bool {
	wrong := map[string]bool{}
	told := map[instance]bool{}
	for _, d := range r.Deleted {
		told[d] = true
	}
	knows := state{}
	for key, v := range before {
		if !told[instance{key, v.UID}] {
			knows[key] = v
		}
	}
	for key, v := range r.Known {
		knows[key] = v
	}
	compare(want, knows, wrong)
	compare(want, r.Cached, wrong)
	for _, d := range deleted {
		if !told[d] {
			wrong[d.Key] = true
		}
	}
	return wrong
}

// compare adds the keys in which two states differ.
func compare(want, got state, wrong map[string]bool) {
	for key, v := range want {
		if got[key] != v {
			wrong[key] = true
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			wrong[key] = true
		}
	}
}
