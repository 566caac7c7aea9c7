package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/runtime/peer"
)

// laneTimeout is how long a lane waits for the call that names it.
const laneTimeout = 10 * time.Second

// lanes are the connections that wait for a call to send its output there; see
// RunRequest.lane. HTTP/2 copies each byte more often than the socket needs, and
// hands each frame to other goroutines: in daemon and client together, two
// fifths of the CPU time of much output.
type lanes struct {
	timeout time.Duration

	mu      sync.Mutex
	waiting map[string]*lane // by name
}

func newLanes(timeout time.Duration) *lanes {
	return &lanes{timeout: timeout, waiting: map[string]*lane{}}
}

// ServeHTTP makes the connection a lane: until the call that names it is over,
// or none does in time.
func (ls *lanes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		http.Error(w, "a lane is a connection of HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	l := newLane(w, r)
	name := ls.add(l)
	if err := l.begin(name); err == nil {
		ls.await(r.Context(), l)
	}
	ls.remove(name)
	l.serve()
}

// add lets l wait under a name that nobody can guess.
func (ls *lanes) add(l *lane) (name string) {
	name = rand.Text()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.waiting[name] = l
	return name
}

// remove ends the time in which the lane can be claimed.
func (ls *lanes) remove(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.waiting, name)
}

// await returns when l was claimed or will not be.
func (ls *lanes) await(ctx context.Context, l *lane) {
	timer := time.NewTimer(ls.timeout)
	defer timer.Stop()
	select {
	case <-l.claimed:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// claim gives the lane of that name to a call under ctx, which then closes it.
// It returns nil where there is none of this caller's.
func (ls *lanes) claim(ctx context.Context, name string) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.waiting[name]
	if l == nil || l.caller != callerOf(ctx) {
		return nil
	}
	delete(ls.waiting, name)
	l.call = ctx
	close(l.claimed)
	return l
}

// callerOf names who makes a call. Listeners that know no callers have one for
// all, whom the core refuses.
func callerOf(ctx context.Context) string {
	c, _ := peer.FromContext(ctx)
	return c.String()
}

// lane is a connection for the output of one call.
type lane struct {
	w       http.ResponseWriter
	control *http.ResponseController
	caller  string
	claimed chan struct{}   // closed when a call has claimed it
	call    context.Context //nolint:containedctx // of that call; set before claimed is closed
	ended   chan struct{}   // closed when the call has closed it

	mu     sync.Mutex // held while writing
	head   []byte
	closed bool
}

func newLane(w http.ResponseWriter, r *http.Request) *lane {
	return &lane{
		w: w, control: http.NewResponseController(w), caller: callerOf(r.Context()),
		claimed: make(chan struct{}), ended: make(chan struct{}),
	}
}

// begin tells the caller the lane's name. Who was told may name it before begin
// has returned.
func (l *lane) begin(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.Header().Set(api.LaneHeader, name)
	l.w.Header().Set("Content-Type", "application/octet-stream")
	l.w.Header().Set("Transfer-Encoding", "identity") // no chunks: each message says its length
	return l.control.Flush()
}

// serve returns when nothing writes to l any more. The end of the call is the
// end of a write that its caller does not take.
func (l *lane) serve() {
	select {
	case <-l.claimed:
	default:
		return
	}
	select {
	case <-l.ended:
	case <-l.call.Done():
		_ = l.control.SetWriteDeadline(time.Unix(1, 0)) // it could when the call began
		<-l.ended
	}
}

// bytes sends a message of one field that holds p.
func (l *lane) bytes(field protowire.Number, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := protowire.SizeTag(field) + protowire.SizeBytes(len(p))
	l.head = binary.AppendUvarint(l.head[:0], uint64(size))
	l.head = protowire.AppendTag(l.head, field, protowire.BytesType)
	l.head = binary.AppendUvarint(l.head, uint64(len(p)))
	return l.write(l.head, p)
}

// number sends a message of one field that holds n.
func (l *lane) number(field protowire.Number, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := protowire.SizeTag(field) + protowire.SizeVarint(uint64(n))
	l.head = binary.AppendUvarint(l.head[:0], uint64(size))
	l.head = protowire.AppendTag(l.head, field, protowire.VarintType)
	return l.write(binary.AppendUvarint(l.head, uint64(n)))
}

// end says that this was all.
func (l *lane) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write([]byte{0})
}

func (l *lane) write(parts ...[]byte) error {
	if l.closed {
		return io.ErrClosedPipe
	}
	for _, p := range parts {
		if _, err := l.w.Write(p); err != nil {
			return err
		}
	}
	return l.control.Flush()
}

// close makes later writes errors, and lets the connection end.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.ended)
	}
}
