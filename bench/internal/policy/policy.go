// Package policy compares what caches of a fixed number of objects keep: the hit
// rate of a sequence of reads.
package policy

import (
	"container/heap"
	"container/list"
)

// Policies are what is compared: the cache of disk residency, others that are as
// cheap or well known, and the best that there could be.
var Policies = []struct {
	Name string
	// Rate returns the hit rate of reads with room for a number of objects.
	Rate func(reads []int, capacity int) float64
}{
	{"ours", Ours},
	{"SIEVE", Sieve},
	{"LRU", LRU},
	{"CLOCK", Clock},
	{"optimum", Optimum},
}

// LRU returns the hit rate of a cache that evicts what has not been read for the
// longest time.
func LRU(reads []int, capacity int) float64 {
	order, places, hits := list.New(), map[int]*list.Element{}, 0
	for _, object := range reads {
		if place, found := places[object]; found {
			order.MoveToFront(place)
			hits++
			continue
		}
		if order.Len() == capacity {
			delete(places, order.Remove(order.Back()).(int))
		}
		places[object] = order.PushFront(object)
	}
	return rate(hits, len(reads))
}

// Optimum returns the highest hit rate that any cache can have: that of one which
// knows the future, and evicts what is read last or never again (Belady 1966).
func Optimum(reads []int, capacity int) float64 {
	next := nextReads(reads)
	// When the objects in the cache are read again. An entry is outdated once the
	// object has been read since.
	kept, order, hits := map[int]int{}, &latest{}, 0
	for i, object := range reads {
		if _, found := kept[object]; found {
			hits++
		} else {
			for len(kept) == capacity {
				last := heap.Pop(order).(future)
				if at, current := kept[last.object]; current && at == last.at {
					delete(kept, last.object)
				}
			}
		}
		kept[object] = next[i]
		heap.Push(order, future{object: object, at: next[i]})
	}
	return rate(hits, len(reads))
}

// nextReads says for each read when the same object is read again.
func nextReads(reads []int) []int {
	next, seen := make([]int, len(reads)), map[int]int{}
	for i := len(reads) - 1; i >= 0; i-- {
		next[i] = len(reads) // never
		if at, again := seen[reads[i]]; again {
			next[i] = at
		}
		seen[reads[i]] = i
	}
	return next
}

// future is when an object is read again.
type future struct{ object, at int }

// latest is a heap with the latest read on top.
type latest []future

// Len implements heap.Interface.
func (l latest) Len() int { return len(l) }

// Less implements heap.Interface.
func (l latest) Less(i, j int) bool { return l[i].at > l[j].at }

// Swap implements heap.Interface.
func (l latest) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push implements heap.Interface.
func (l *latest) Push(x any) { *l = append(*l, x.(future)) }

// Pop implements heap.Interface.
func (l *latest) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func rate(hits, reads int) float64 { return float64(hits) / float64(max(reads, 1)) }
