package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/caisson-run/caisson/sbxerr"
)

// What opens a lane; see RunResponse.output_moved in the proto.
const (
	LanePath   = "/lane"
	LaneHeader = "Caisson-Lane"
)

const (
	// laneAfter is how much output comes with a call's other messages before a
	// lane for it is opened, in bytes: more than most commands write.
	laneAfter = 1 << 20
	// maxLaneMessage bounds one message in a lane, in bytes.
	maxLaneMessage = 4 << 20
)

// lane is the connection on which the output of a call comes once it is much.
// But for read, its methods are for the one who receives the call's messages.
type lane[Res any] struct {
	open openLane           // nil: there is to be none
	call answered           // whose lane it is
	take func(*Res) error   // of each message
	fail context.CancelFunc // ends the call

	had    int  // bytes of output that came with the call's other messages
	asked  bool // it was opened, or that failed
	joined bool // the output comes in it

	moved chan struct{} // closed when joined
	done  chan struct{} // closed when nothing is read any more
	err   error         // why that ended; set before done is closed
}

// openLane opens the lane of that name, which ends with ctx.
type openLane func(ctx context.Context, name string) (io.ReadCloser, error)

// answered is a call that was answered.
type answered interface{ ResponseHeader() http.Header }

// count takes note of n bytes of output that came with the call's other
// messages, and opens the lane when they are many. Where that fails they go on
// to come there.
func (l *lane[Res]) count(ctx context.Context, n int) error {
	if l.joined {
		return laneError(errors.New("output came beside the lane"))
	}
	if l.had += n; l.had < laneAfter || l.asked || l.open == nil {
		return nil
	}
	l.asked, l.moved, l.done = true, make(chan struct{}), make(chan struct{})
	name := l.call.ResponseHeader().Get(LaneHeader)
	go func() {
		defer close(l.done)
		l.err = l.read(ctx, name)
	}()
	return nil
}

// join is for the message that says that the output moved.
func (l *lane[Res]) join() error {
	if !l.asked || l.joined {
		return laneError(errors.New("the output moved to a lane that nobody asked for"))
	}
	l.joined = true
	close(l.moved)
	return nil
}

// wait returns when all that comes in the lane was passed on, and why it was not
// all.
func (l *lane[Res]) wait() error {
	if !l.joined {
		return nil
	}
	<-l.done
	return l.err
}

// or returns what the caller's writers said in the lane, or else err, when all
// that comes was passed on.
func (l *lane[Res]) or(err error) error {
	if inLane := l.wait(); errors.Is(inLane, sbxerr.ClientIO) {
		return inLane
	}
	return err
}

// leave waits for read when the call's context has ended.
func (l *lane[Res]) leave() {
	if l.asked {
		<-l.done
	}
}

// read passes on what comes in the lane.
func (l *lane[Res]) read(ctx context.Context, name string) error {
	body, err := l.open(ctx, name)
	if err != nil {
		return err
	}
	defer body.Close()
	select {
	case <-l.moved:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r := bufio.NewReader(body)
	for {
		m, err := nextInLane[Res](r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return laneError(err)
		}
		if err := l.take(m); err != nil {
			l.fail()
			return err
		}
	}
}

func laneError(err error) error {
	return Explain(sbxerr.Wrap(sbxerr.APIBroken, "api.lane", err))
}

// nextInLane reads one message. The end that was said is io.EOF, any other is
// not. Output is read into the memory in which it is passed on.
func nextInLane[Res any](r *bufio.Reader) (*Res, error) {
	size, err := binary.ReadUvarint(r)
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case size == 0:
		return nil, io.EOF
	case size > maxLaneMessage:
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	m := new(Res)
	start, err := r.Peek(int(min(size, 1+binary.MaxVarintLen64)))
	if err != nil {
		return nil, noEOF(err)
	}
	if number, head, ok := headOfBytes(start, int(size)); ok && holdsOutput(m, number) {
		_, _ = r.Discard(head) // it was peeked at
		p := buffer(int(size) - head)
		setOutput(m, number, p)
		_, err := io.ReadFull(r, p)
		return m, noEOF(err)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, noEOF(err)
	}
	return m, codec{}.Unmarshal(data, m)
}

// noEOF makes an end inside of a message no end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// openLane connects once more to the daemon.
func (c *Client) openLane(ctx context.Context, name string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://caisson"+LanePath, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(LaneHeader, name)
	res, err := c.lanes.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("the daemon opens no lane: %s", res.Status), res.Body.Close())
	}
	return res.Body, nil
}
