package bolt

import (
	"sync"
	"time"
)

// droppedLogInterval is how often the log says that departed records are dropped.
// Where objects come and go fast, that happens with every batch.
const droppedLogInterval = 10 * time.Minute

// droppedRecords counts the departed records of a collection that were given up
// because they had more than their limit.
type droppedRecords struct {
	sync.Mutex
	// count is how many there were since logged, when the log last said so.
	count  int
	logged time.Time
}

// note counts n more, and logs all that the log does not know of, the first time and
// then once in a while.
func (d *droppedRecords) note(c *collection, n int) {
	d.Lock()
	defer d.Unlock()
	d.count += n
	now := c.db.options.Clock.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < droppedLogInterval {
		return
	}
	c.db.log.Info("Warning: dropped the oldest departed records, which had more than their limit; "+
		"their deletes will not be delivered after a restart",
		"collection", c.id.String(), "dropped", d.count, "limitBytes", c.db.options.DepartedBytes)
	d.count, d.logged = 0, now
}
