package usage

import (
	"sync"
	"time"
)

// Peak samples the memory of the process. Its methods are safe for concurrent
// use.
type Peak struct {
	stop, stopped chan struct{}

	mu struct {
		sync.Mutex
		highest Memory
		err     error
	}
}

// Watch takes a sample every interval until Stop, which must be called once.
func Watch(interval time.Duration) *Peak {
	p := &Peak{stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run(interval)
	return p
}

func (p *Peak) run(interval time.Duration) {
	defer close(p.stopped)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		p.sample()
		select {
		case <-ticker.C:
		case <-p.stop:
			return
		}
	}
}

func (p *Peak) sample() {
	now, err := Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.highest = p.mu.highest.max(now)
	if err != nil {
		p.mu.err = err
	}
}

// Take takes a last sample and returns the highest of each kind since the Peak
// was made or Take was last called, or the last error that a sample had.
func (p *Peak) Take() (Memory, error) {
	p.sample()
	p.mu.Lock()
	defer p.mu.Unlock()
	highest, err := p.mu.highest, p.mu.err
	p.mu.highest, p.mu.err = Memory{}, nil
	return highest, err
}

// Stop ends the sampling.
func (p *Peak) Stop() {
	close(p.stop)
	<-p.stopped
}
