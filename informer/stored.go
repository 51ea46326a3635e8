package informer

import "github.com/warmcache/warmcache/indexer"

// stored returns where handlers take the objects from, or nil if those are in memory.
// It is known once the informer has opened its collection.
func (i *sharedIndexInformer) stored() *source {
	if i.indexer.Residency() != Disk {
		return nil
	}
	return &source{delivery: &i.delivery, objects: storedIn{i}}
}

// storedIn are the objects of an informer in disk residency.
type storedIn struct{ *sharedIndexInformer }

// Chunk implements storedObjects.
func (s storedIn) Chunk(after string) (chunk, error) {
	c, err := s.indexer.Chunk(after)
	if err != nil {
		return nil, err
	}
	return storedChunk{c, s.mutations.AddObject}, nil
}

// AwaitReadable implements storedObjects.
func (s storedIn) AwaitReadable(stop <-chan struct{}) bool { return s.indexer.AwaitReadable(stop) }

// storedChunk has what handlers get watched for mutations.
type storedChunk struct {
	*indexer.Chunk
	watch func(obj any)
}

// Object implements chunk.
func (c storedChunk) Object(n int) (any, error) {
	obj, err := c.Chunk.Object(n)
	if err != nil {
		return nil, err
	}
	c.watch(obj)
	return obj, nil
}

// replayStored shows the state to all handlers, and returns the number of objects.
func (i *sharedIndexInformer) replayStored() int {
	if s := i.stored(); s != nil {
		i.processor.startReplay(s)
		return i.indexer.Len()
	}
	objects := i.indexer.List()
	for _, obj := range objects {
		i.mutations.AddObject(obj)
	}
	i.processor.distributeInitial(objects)
	return len(objects)
}

// resyncHandlers redelivers what the indexer holds to the handlers that want it now.
// In disk residency they take it themselves: a queue would hold it all.
func (i *sharedIndexInformer) resyncHandlers() {
	due := i.processor.dueForResync()
	if len(due) == 0 {
		return
	}
	if s := i.stored(); s != nil {
		for _, l := range due {
			l.startResync(s)
		}
		return
	}
	i.lifecycle.Lock()
	queue := i.lifecycle.queue
	i.lifecycle.Unlock()
	queue.Resync()
}
