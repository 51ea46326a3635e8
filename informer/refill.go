package informer

import (
	"github.com/warmcache/warmcache/fifo"
)

// In disk residency, what is lost with a damaged file is lost: there is no copy in
// memory to write anew, and the list that fills the next file has nothing to be
// compared with. Handlers know the lost state all the same, so that a list of that
// very state, which the server is asked for first, has nothing to tell them, and the
// watch goes on from there: nothing is missed. If the server has forgotten it, the
// list is of a newer state. What has changed in between cannot be known, so that every
// handler is shown everything again, as added; an object that was deleted in between is
// not among it.

// refilling is what a running informer knows of objects that were lost.
type refilling struct {
	// rv is the version that they had.
	rv string
}

// beginAnew empties a collection that cannot be read, and returns the error that makes
// the queue ask for a list. It returns nil if there is nothing to do.
func (i *sharedIndexInformer) beginAnew() error {
	if !i.indexer.IsLost() {
		return nil
	}
	cause := i.indexer.ReadErr()
	rv, err := i.indexer.BeginAnew()
	if err != nil {
		return err
	}
	i.delivery.listed = true // nothing can contradict what is not there
	i.delivery.refill = &refilling{rv: rv}
	if cause == nil {
		cause = i.indexer.ReadErr()
	}
	if rv == "" { // there was no list yet, so that nothing is missed
		return cause
	}
	return &fifo.LostError{RV: rv, Err: cause}
}

// refill goes on with a batch of the list that fills the collection.
func (i *sharedIndexInformer) refill(b fifo.Batch) {
	if b.List != fifo.ListEnd {
		return
	}
	lost := i.delivery.refill.rv
	i.delivery.refill = nil
	if i.delivery.replayed && (b.RV == "" || b.RV != lost) {
		i.processor.showAllAnew(i.stored())
	}
}
