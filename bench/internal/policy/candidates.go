package policy

import "container/list"

// Clock returns the hit rate of CLOCK: values in the order of their arrival, a hit
// sets a mark, and the oldest without one is evicted; one with a mark loses it and
// counts as new.
func Clock(reads []int, capacity int) float64 {
	marked, order, hits := map[int]bool{}, &queue{}, 0
	for _, object := range reads {
		if _, found := marked[object]; found {
			marked[object] = true
			hits++
			continue
		}
		for order.len() == capacity {
			oldest := order.pop()
			if marked[oldest] {
				marked[oldest] = false
				order.push(oldest)
				continue
			}
			delete(marked, oldest)
		}
		marked[object] = false
		order.push(object)
	}
	return rate(hits, len(reads))
}

// Sieve returns the hit rate of SIEVE (Zhang et al., NSDI 2024): as CLOCK, but what
// loses its mark keeps its place, and the next search goes on behind it.
func Sieve(reads []int, capacity int) float64 {
	s, hits := &sieve{order: list.New(), places: map[int]*list.Element{}}, 0
	for _, object := range reads {
		if place, found := s.places[object]; found {
			place.Value.(*sieved).marked = true
			hits++
			continue
		}
		if s.order.Len() == capacity {
			s.evict()
		}
		s.places[object] = s.order.PushBack(&sieved{object: object})
	}
	return rate(hits, len(reads))
}

type sieve struct {
	order  *list.List // from the oldest to the newest
	places map[int]*list.Element
	// hand is where the search goes on, nil at the oldest.
	hand *list.Element
}

type sieved struct {
	object int
	marked bool
}

func (s *sieve) evict() {
	for {
		if s.hand == nil {
			s.hand = s.order.Front()
		}
		place, value := s.hand, s.hand.Value.(*sieved)
		s.hand = place.Next()
		if !value.marked {
			s.order.Remove(place)
			delete(s.places, value.object)
			return
		}
		value.marked = false
	}
}

// queue is first in, first out.
type queue struct{ in, out []int }

func (q *queue) len() int { return len(q.in) + len(q.out) }

func (q *queue) push(object int) { q.in = append(q.in, object) }

func (q *queue) pop() int {
	if len(q.out) == 0 {
		for i := len(q.in) - 1; i >= 0; i-- {
			q.out = append(q.out, q.in[i])
		}
		q.in = q.in[:0]
	}
	last := q.out[len(q.out)-1]
	q.out = q.out[:len(q.out)-1]
	return last
}
