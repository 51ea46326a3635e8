// Package hygiene holds the rules of this repository that a compiler does not
// check, as tests: who may import whom, what library code never calls, and that
// everything a user can see is documented.
//
// The rules are tables with their reasons: layers and importRules in
// imports_test.go, callRules in calls_test.go. Change a table when the design
// changes, not to silence a test. A call that is right for once is allowed by a
// comment on its line or the line above, which says why:
//
//	time.Sleep(d) //hygiene:allow time.Sleep: the kernel offers no event for this
package hygiene
