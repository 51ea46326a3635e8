package policy

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

// S3FIFO returns the hit rate of S3-FIFO (Yang et al., SOSP 2023): what is new
// begins in a small queue, and only what is read again there, or soon after, comes
// into the main one.
func S3FIFO(reads []int, capacity int) float64 {
	s := &s3fifo{
		small: capacity / 10, capacity: capacity,
		frequency: map[int]int{}, ghosts: map[int]int{},
	}
	hits := 0
	for _, object := range reads {
		if s.read(object) {
			hits++
		}
	}
	return rate(hits, len(reads))
}

type s3fifo struct {
	small, capacity int
	// frequency of those in either queue, up to 3.
	frequency map[int]int
	new, main queue
	// ghosts counts how often an object that is not kept is in past.
	ghosts map[int]int
	past   queue
}

func (s *s3fifo) read(object int) (hit bool) {
	if n, found := s.frequency[object]; found {
		s.frequency[object] = min(n+1, 3)
		return true
	}
	for s.new.len()+s.main.len() >= s.capacity {
		if s.new.len() >= s.small || s.main.len() == 0 {
			s.evictNew()
		} else {
			s.evictMain()
		}
	}
	s.frequency[object] = 0
	if s.ghosts[object] > 0 {
		s.main.push(object)
	} else {
		s.new.push(object)
	}
	return false
}

func (s *s3fifo) evictNew() {
	object := s.new.pop()
	if s.frequency[object] > 0 {
		s.frequency[object] = 0
		s.main.push(object)
		return
	}
	delete(s.frequency, object)
	s.past.push(object)
	s.ghosts[object]++
	if s.past.len() > s.capacity {
		forgotten := s.past.pop()
		if s.ghosts[forgotten]--; s.ghosts[forgotten] == 0 {
			delete(s.ghosts, forgotten)
		}
	}
}

func (s *s3fifo) evictMain() {
	object := s.main.pop()
	if s.frequency[object] > 0 {
		s.frequency[object]--
		s.main.push(object)
		return
	}
	delete(s.frequency, object)
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
