package mcp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// maxCommands bounds the commands that are remembered: the oldest that ended goes first.
const maxCommands = 256

// commands are those that clients started.
type commands struct {
	end     context.Context // of all of them
	endAll  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	last int
	list map[string]*command
}

// command is one call of bash.
type command struct {
	id, ref        string
	script         string
	began          time.Time
	stdout, stderr *window
	stdin          *io.PipeWriter // nil: it has none
	cancel         context.CancelFunc
	started        chan struct{} // closed when it runs
	done           chan struct{}
	killed         atomic.Bool // by bash_kill

	result *caissonv1.Result // these are set once it is done
	err    error
	exec   *caissonv1.Exec // nil: it never ran
}

// start executes a command. It goes on when the call that started it has returned.
func (s *Server) start(ref, script string, spec *caissonv1.ExecSpec, interactive bool, shown int64) *command {
	ctx, cancel := context.WithCancel(s.commands.end)
	c := &command{
		ref: ref, script: script, began: time.Now(), cancel: cancel, stdout: newWindow(shown), stderr: newWindow(shown),
		started: make(chan struct{}), done: make(chan struct{}),
	}
	rio := api.IO{Stdout: c.stdout, Stderr: c.stderr, Started: func(s *caissonv1.Started) {
		c.exec = s.GetExec()
		close(c.started)
	}}
	if interactive {
		var r *io.PipeReader
		r, c.stdin = io.Pipe()
		rio.Stdin = r
	}
	s.commands.add(c)
	s.commands.running.Go(func() {
		defer cancel()
		c.result, c.err = s.client.Exec(ctx, ref, spec, rio)
		if c.stdin != nil {
			_ = c.stdin.CloseWithError(errors.New("the command has ended")) // never fails
		}
		close(c.done)
	})
	return c
}

func (l *commands) add(c *command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	c.id = strconv.Itoa(l.last)
	if l.list == nil {
		l.list = map[string]*command{}
	}
	l.list[c.id] = c
	if len(l.list) <= maxCommands {
		return
	}
	for _, old := range l.sorted() {
		if old.ended() {
			delete(l.list, old.id)
			return
		}
	}
}

// sorted lists the commands, the oldest first. mu is held.
func (l *commands) sorted() []*command {
	return slices.SortedFunc(maps.Values(l.list), func(a, b *command) int { return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.id, b.id)) })
}

func (l *commands) find(id string) (*command, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.list[id]; c != nil {
		return c, nil
	}
	running := ""
	for _, c := range l.sorted() {
		if !c.ended() {
			running += " " + c.id
		}
	}
	if running == "" {
		return nil, refused("there is no command %q, and none is running", id)
	}
	return nil, refused("there is no command %q; running are:%s", id, running)
}

// forget drops a command whose result was told.
func (l *commands) forget(c *command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, c.id)
}

func (l *commands) close() {
	l.endAll()
	l.running.Wait()
}

func (c *command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// await returns when the command has ended, or after wait. Where ctx ends before, the
// command is killed with all that it started.
func (c *command) await(ctx context.Context, wait time.Duration, tick func()) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-c.done:
			return nil
		case <-timer.C:
			return nil
		case <-ticks.C:
			tick()
		case <-ctx.Done():
			c.cancel()
			<-c.done
			return context.Cause(ctx)
		}
	}
}
