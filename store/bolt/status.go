package bolt

import "github.com/warmcache/warmcache/store"

// Status implements store.Store.
func (db *DB) Status() store.Status {
	if db.memory != nil {
		return db.memory.Status()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	err := db.mu.err
	if err == nil && db.closed.Load() {
		err = store.ErrClosed
	}
	return store.Status{
		Persistent: true,
		Err:        err,
		Committed:  db.mu.committed,
		Commits:    db.mu.commitTimes.Count, FailedCommits: db.mu.failed, CommitTimes: db.mu.commitTimes,
		PendingBytes: db.mu.pending.plus(db.mu.frozen).bytes,
		FileBytes:    db.mu.fileBytes, FreeBytes: db.mu.freeBytes,
		Quarantines: db.mu.quarantines, Quarantined: db.mu.quarantined,
		Scrub: db.mu.scrub,
	}
}

// measure notes the size of the file, which only a commit changes.
func (db *DB) measure(f *openFile) {
	total, free := f.size()
	db.mu.Lock()
	defer db.mu.Unlock()
	db.mu.fileBytes, db.mu.freeBytes = total, free
}

// size returns the size of the file and of what is free in it; 0 for what cannot
// be read.
func (f *openFile) size() (total, free int64) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, 0
	}
	total = info.Size()
	meta, _, err := readMeta(f.file)
	if err != nil {
		return total, 0
	}
	header := make([]byte, pageHeader+8)
	if _, err := f.file.ReadAt(header, int64(meta.freelist)*pageSize); err != nil {
		return total, 0
	}
	pages := int64(order.Uint16(header[10:]))
	if pages == 0xffff {
		// More than fits into the header: the first number is the count.
		pages = int64(order.Uint64(header[pageHeader:]))
	}
	// What lies beyond the last page was reserved ahead.
	return total, total - (int64(meta.pages)-pages)*pageSize
}
