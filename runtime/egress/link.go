package egress

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/control"
)

// errGone is a process that ended before it answered. Nothing of it is in force
// any more.
var errGone = errors.New("the gateway ended before it answered")

// What a gateway may report in a second, and at once: more than all sandboxes
// of a host do, and little enough to read. One that reports more waits.
const (
	reportsPerSecond = 20000
	reportsBurst     = 64 << 10
)

// link is the connection to one process.
type link struct {
	conn     *net.UnixConn
	kill     func() // the process; may be called often, and at any time
	patience time.Duration
	events   func(control.Report)

	gone     chan struct{} // closed when the process is over
	confined chan struct{} // closed when it said that it is

	writing sync.Mutex
	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan error
	broken  error // why it was given up; nil if it just ended
}

func newLink(conn *net.UnixConn, patience time.Duration, kill func(), events func(control.Report)) *link {
	return &link{
		conn: conn, kill: kill, patience: patience, events: events,
		gone: make(chan struct{}), confined: make(chan struct{}), waiting: map[uint64]chan error{},
	}
}

// ask sends q and returns what the gateway says to it, or errGone. A process
// that gives no answer in time is killed: afterwards it is certain that nothing
// of q is in force.
func (l *link) ask(q control.Request, files ...*os.File) error {
	answer, err := l.send(q, files)
	if err != nil {
		return err
	}
	limit := time.NewTimer(l.patience)
	defer limit.Stop()
	select {
	case err := <-answer:
		return err
	case <-l.gone:
	case <-limit.C:
		l.giveUp(fmt.Errorf("it gives no answer to %q for %v", q.Op, l.patience))
		<-l.gone
	}
	select {
	case err := <-answer: // it had come all the same
		return err
	default:
		return errGone
	}
}

func (l *link) send(q control.Request, files []*os.File) (<-chan error, error) {
	answer := make(chan error, 1)
	l.mu.Lock()
	l.seq++
	q.Seq = l.seq
	l.waiting[q.Seq] = answer
	l.mu.Unlock()
	frame, err := control.EncodeRequest(q)
	if err != nil {
		l.mu.Lock()
		delete(l.waiting, q.Seq)
		l.mu.Unlock()
		return nil, badRequest(q, err)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	err = l.conn.SetWriteDeadline(time.Now().Add(l.patience))
	if err == nil {
		err = control.Send(l.conn, frame, files...)
	}
	if err != nil { // half a frame may be on its way: nothing can follow it
		l.giveUp(fmt.Errorf("send it a request: %w", err))
		<-l.gone
		return nil, errGone
	}
	return answer, nil
}

// giveUp ends the process, and remembers why.
func (l *link) giveUp(why error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = why
	}
	l.mu.Unlock()
	l.kill()
	_ = l.conn.Close() // ends read
}

func (l *link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// why says why the process was given up, if it was.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// read takes what the gateway reports until it ends or breaks the rules, and
// returns why that is. It never takes descriptors: read(2) leaves none.
func (l *link) read() error {
	in := bufio.NewReaderSize(l.conn, control.MaxReport)
	pace := rate.NewLimiter(reportsPerSecond, reportsBurst)
	for {
		body, err := control.ReadFrame(in, control.MaxReport)
		if err != nil {
			return fmt.Errorf("read what it reports: %w", err)
		}
		r, err := control.DecodeReport(body)
		if err == nil {
			err = l.handle(r)
		}
		if err != nil {
			return fmt.Errorf("it breaks the rules: %w", err)
		}
		time.Sleep(pace.Reserve().Delay())
	}
}

func (l *link) handle(r control.Report) error {
	switch {
	case r.Confined:
		select {
		case <-l.confined:
			return errors.New("it is confined a second time")
		default:
			close(l.confined)
		}
	case r.Answer != nil:
		return l.answer(r.Answer)
	default:
		l.events(r)
	}
	return nil
}

func (l *link) answer(a *control.Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiter, ok := l.waiting[a.Seq]
	if !ok {
		return fmt.Errorf("it answers request %d, which waits for no answer", a.Seq)
	}
	delete(l.waiting, a.Seq)
	waiter <- a.Err()
	return nil
}
