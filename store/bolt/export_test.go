package bolt

// FailCommits makes o run hook before each commit, which fails with its error.
func FailCommits(o Options, hook func() error) Options {
	o.beforeCommit = hook
	return o
}

// CheckStructure is what Open verifies before bbolt reads a file.
var CheckStructure = checkStructure

// Poison makes the store behave as after a panic of bbolt.
func (db *DB) Poison(cause error) error { return db.poison(cause) }

// Names of what is next to a file.
var LockPath = lockPath

const (
	MaxStrikes     = maxStrikes
	MaxQuarantined = maxQuarantined
)
