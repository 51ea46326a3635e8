package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"time"
	"unicode"

	"k8s.io/klog/v2"

	"github.com/warmcache/warmcache/bench/internal/subject"
	"github.com/warmcache/warmcache/bench/internal/usage"
)

// sampling is how often the memory is looked at.
const sampling = 5 * time.Millisecond

// errParent says that nobody wants to know any more.
var errParent = errors.New("standard input has ended")

// IsChild reports whether this process is to run a subject.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child runs a subject until stdin ends, and returns the exit status.
func Child(stdin io.Reader, stdout io.Writer) int {
	// Ctrl-C reaches all processes of a terminal. The parent deals with it.
	signal.Ignore(os.Interrupt)
	// Errors are still shown. How a start came out is in the report.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	out := json.NewEncoder(stdout)
	if err := runChild(stdin, out); err != nil {
		_ = out.Encode(Report{Error: err.Error()})
		return 1
	}
	return 0
}

func runChild(stdin io.Reader, out *json.Encoder) error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	peak := usage.Watch(sampling)
	defer peak.Stop()
	x, err := subject.New(o.Spec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	commands := make(chan command)
	defer cancel(nil)
	go readCommands(ctx, stdin, commands, cancel)
	c := &child{order: o, subject: x, peak: peak}
	err = c.serve(ctx, commands, out)
	if errors.Is(err, errParent) {
		err = nil
	}
	return errors.Join(err, x.Close())
}

// readCommands hands commands on until stdin ends, which ends everything.
func readCommands(ctx context.Context, stdin io.Reader, commands chan<- command, cancel context.CancelCauseFunc) {
	decoder := json.NewDecoder(stdin)
	for {
		var c command
		if err := decoder.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				err = errParent
			}
			cancel(err)
			return
		}
		select {
		case commands <- c:
		case <-ctx.Done():
			return
		}
	}
}

// child is a subject and what has been measured up to the last mark.
type child struct {
	order   order
	subject *subject.Subject
	peak    *usage.Peak
	mark    struct {
		cpu             time.Duration
		received, lists int64
		updates         int64
	}
}

func (c *child) serve(ctx context.Context, commands <-chan command, out *json.Encoder) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case cmd := <-commands:
			report, err := c.do(ctx, cmd)
			if err == nil {
				err = out.Encode(report)
			}
			if err != nil {
				return err
			}
		}
	}
}

func (c *child) do(ctx context.Context, cmd command) (Report, error) {
	switch cmd.Op {
	case opSync:
		return c.measure(ctx, cmd, c.order.Started, func() error { return c.subject.Sync(ctx) })
	case opAwait:
		return c.measure(ctx, cmd, cmd.Since, func() error {
			return c.subject.Await(ctx, c.mark.updates+int64(cmd.Updates))
		})
	case opQuery:
		var objects int
		report, err := c.measure(ctx, cmd, time.Now(), func() (err error) {
			objects, err = c.subject.Query(cmd.Nodes)
			return err
		})
		report.Objects = objects
		return report, err
	case opMark:
		return Report{}, c.markHere()
	}
	return Report{}, fmt.Errorf("unknown command %q", cmd.Op)
}

// measure does what a phase consists of, lets the subject settle, and takes the
// figures. The next phase begins where it ends.
func (c *child) measure(ctx context.Context, cmd command, since time.Time, do func() error) (Report, error) {
	if err := do(); err != nil {
		return Report{}, err
	}
	r := Report{Seconds: time.Since(since).Seconds()}
	if err := c.subject.Settle(ctx); err != nil {
		return Report{}, err
	}
	cpu, err := usage.CPU()
	if err != nil {
		return Report{}, err
	}
	r.CPUSeconds = (cpu - c.mark.cpu).Seconds()
	if r.Peak, err = c.peak.Take(); err != nil {
		return Report{}, err
	}
	if r.After, err = usage.Settled(); err != nil {
		return Report{}, err
	}
	r.Received = c.subject.Traffic().BytesReceived() - c.mark.received
	r.Lists = c.subject.Traffic().Lists() - c.mark.lists
	r.Objects = c.subject.Objects()
	if err := c.profile(cmd.Phase); err != nil {
		return Report{}, err
	}
	return r, c.markHere()
}

// markHere begins a measurement. The peak begins without the garbage of what was
// before.
func (c *child) markHere() (err error) {
	if _, err = usage.Settled(); err != nil {
		return err
	}
	if c.mark.cpu, err = usage.CPU(); err != nil {
		return err
	}
	c.mark.received, c.mark.lists = c.subject.Traffic().BytesReceived(), c.subject.Traffic().Lists()
	c.mark.updates = c.subject.Updates()
	_, err = c.peak.Take()
	return err
}

// profile writes what is in use, and what has been allocated since the process
// began, for go tool pprof.
func (c *child) profile(phase string) error {
	if c.order.Profile == "" {
		return nil
	}
	words := strings.FieldsFunc(phase, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	f, err := os.Create(c.order.Profile + "-" + strings.Join(words, "-") + ".heap")
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
