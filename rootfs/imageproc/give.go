package imageproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Bounds of what a process asks for.
const (
	maxAsk    = 4 << 10  // bytes of a request
	maxAnswer = 64 << 10 // bytes of an answer
	maxAsking = 16       // requests that are served at once
)

// Giver gives a process a file or a socket that it asks for. It is closed once the process has it.
type Giver func(ctx context.Context, request json.RawMessage) (*os.File, error)

// ask is a request for a descriptor.
type ask struct {
	ID   int             `json:"id"`
	Body json.RawMessage `json:"body"`
}

// answer comes with a descriptor, or says why there is none.
type answer struct {
	ID      int      `json:"id"`
	Failure *Failure `json:"failure,omitempty"` // with a code; else
	Text    string   `json:"text,omitempty"`
	Timeout bool     `json:"timeout,omitempty"`

	file *os.File
}

// askedBy makes the connection for requests, and returns the end of the process.
func (p *Process) askedBy() (asker *os.File, err error) {
	own, asker, err := pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer own.Close() // the connection is a copy
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, errors.Join(err, asker.Close())
	}
	p.asks, _ = conn.(*net.UnixConn)
	return asker, nil
}

// give serves the requests of a process until its end. They come without descriptors: it cannot
// send any, and those of a read(2) are lost.
func (p *Process) give(ctx context.Context) {
	buf := make([]byte, maxAsk)
	slots := make(chan struct{}, maxAsking)
	for {
		n, err := p.asks.Read(buf)
		var a ask
		if err != nil || json.Unmarshal(buf[:n], &a) != nil {
			return // what waits for an answer goes without
		}
		slots <- struct{}{}
		p.giving.Go(func() {
			defer func() { <-slots }()
			f, err := p.job.Give(ctx, a.Body)
			p.answer(answerOf(a.ID, err), f)
		})
	}
}

func answerOf(id int, err error) answer {
	a := answer{ID: id}
	var coded *sbxerr.Error
	var timeout net.Error
	switch {
	case errors.As(err, &coded):
		f := FailureOf(coded)
		f.Text = clip(f.Text, maxAsk)
		a.Failure = &f
	case err != nil:
		a.Text, a.Timeout = clip(err.Error(), maxAsk), errors.As(err, &timeout) && timeout.Timeout()
	}
	return a
}

// answer sends an answer, with f unless that is nil, and closes f.
func (p *Process) answer(a answer, f *os.File) {
	var rights []byte
	if f != nil {
		defer f.Close() // the process has it
		rights = unix.UnixRights(int(f.Fd()))
	}
	data, err := json.Marshal(a)
	if err == nil && len(data) <= maxAnswer {
		_, _, _ = p.asks.WriteMsgUnix(data, rights, nil) // a process that has gone needs none
	}
}

// Asker is how a process gets files and sockets of the daemon, beside its connection.
type Asker struct {
	conn *os.File

	mu      sync.Mutex
	last    int                 // ID
	waiting map[int]chan answer // nil: there will be no more
}

// NewAsker returns an Asker on the last file of a Job that gives.
func NewAsker(conn *os.File) *Asker {
	a := &Asker{conn: conn, waiting: map[int]chan answer{}}
	go a.receive(int(conn.Fd()))
	return a
}

var errNothingGiven = errors.New("no more descriptors can be had")

// Ask returns what the daemon gives. Its errors have their codes, and are net.Errors else.
func (a *Asker) Ask(ctx context.Context, request any) (*os.File, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	if a.waiting == nil {
		a.mu.Unlock()
		return nil, errNothingGiven
	}
	a.last++
	id, given := a.last, make(chan answer, 1)
	a.waiting[id] = given
	a.mu.Unlock()
	data, err := json.Marshal(ask{id, body})
	if err == nil {
		_, err = a.conn.Write(data)
	}
	if err != nil {
		return nil, err
	}
	select {
	case got := <-given:
		return got.file, got.err()
	case <-ctx.Done():
		go func() {
			if got := <-given; got.file != nil {
				_ = got.file.Close() // nobody waits for it
			}
		}()
		return nil, ctx.Err()
	}
}

// receive gives each answer to its request.
func (a *Asker) receive(fd int) {
	buf, rights := make([]byte, maxAnswer), make([]byte, unix.CmsgSpace(4))
	for {
		got, err := receiveAnswer(fd, buf, rights)
		a.mu.Lock()
		if err != nil {
			for _, w := range a.waiting {
				w <- answer{Text: errNothingGiven.Error()}
			}
			a.waiting = nil
			a.mu.Unlock()
			return
		}
		w := a.waiting[got.ID]
		delete(a.waiting, got.ID)
		a.mu.Unlock()
		w <- got
	}
}

func receiveAnswer(fd int, buf, rights []byte) (got answer, err error) {
	n, oob, _, _, err := unix.Recvmsg(fd, buf, rights, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, oob, _, _, err = unix.Recvmsg(fd, buf, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil {
		err = json.Unmarshal(buf[:n], &got) // nothing was read where the daemon has gone
	}
	if err != nil || oob == 0 {
		return got, err
	}
	list, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(list) != 1 {
		return got, fmt.Errorf("%w: %d control messages: %w", errBroken, len(list), err)
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) != 1 {
		return got, fmt.Errorf("%w: %d descriptors: %w", errBroken, len(fds), err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that it has deadlines
		return got, err
	}
	got.file = os.NewFile(uintptr(fds[0]), "given")
	return got, nil
}

// err is why there is no descriptor.
func (a answer) err() error {
	switch {
	case a.Failure != nil:
		return a.Failure.Err()
	case a.Text != "":
		return notGiven{a.Text, a.Timeout}
	case a.file == nil:
		return errNothingGiven // it has too many descriptors
	}
	return nil
}

// notGiven is a net.Error.
type notGiven struct {
	text    string
	timeout bool
}

// Error implements error.
func (n notGiven) Error() string { return n.text }

// Timeout implements net.Error.
func (n notGiven) Timeout() bool { return n.timeout }

// Temporary implements net.Error.
func (n notGiven) Temporary() bool { return n.timeout }
