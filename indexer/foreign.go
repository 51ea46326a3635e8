package indexer

import "sync"

// foreign are the objects that the file has and this program must not serve,
// because they were written under another fingerprint. They are known, so that a list
// can tell what has been deleted since. It takes their keys and UIDs in memory, until
// a list has replaced them.
type foreign struct {
	mu sync.RWMutex
	// all is set as long as it is not known which they are: nothing is served.
	all  bool
	uids map[string]string
	// replaced has the number of the write that has replaced a record, for those who
	// read a snapshot from before.
	replaced map[string]uint64
}

func newForeign() *foreign {
	return &foreign{uids: map[string]string{}, replaced: map[string]uint64{}}
}

// hides says whether the record of key is not to be served, from a snapshot that is
// no older than the given write. A nil foreign hides nothing.
func (f *foreign) hides(key string, write uint64) bool {
	if f == nil {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.all {
		return true
	}
	_, isForeign := f.uids[key]
	return isForeign || f.replaced[key] > write
}

// uid returns the UID of a record that has not been replaced; noUID if not even the
// envelope could be read.
func (f *foreign) uid(key string) (uid string, known bool) {
	if f == nil {
		return "", false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	uid, known = f.uids[key]
	return uid, known
}

// replace notes that a write has replaced or removed the record of key.
func (f *foreign) replace(key string, write uint64) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, isForeign := f.uids[key]; isForeign {
		delete(f.uids, key)
		f.replaced[key] = write
	}
}

// keys returns the keys of those that have not been replaced.
func (f *foreign) keys() []string {
	if f == nil {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	keys := make([]string, 0, len(f.uids))
	for key := range f.uids {
		keys = append(keys, key)
	}
	return keys
}
