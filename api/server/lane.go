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

// lanes are the calls whose output can move to a connection of its own; see
// RunResponse.output_moved. HTTP/2 copies each byte more often than the socket
// needs, and hands each frame to other goroutines: in daemon and client together,
// two fifths of the CPU time of much output.
type lanes struct {
	mu     sync.Mutex
	offers map[string]offer // by name
}

// offer is a lane that a call would use.
type offer struct {
	call   context.Context // whose end is the lane's
	caller string
	join   func(*lane) // which closes it in the end
}

func newLanes() *lanes { return &lanes{offers: map[string]offer{}} }

// offer tells the caller of the call under ctx the name of a lane, in the header
// of the call's answer: when it is opened, join gets it. After withdraw it cannot be
// opened.
func (ls *lanes) offer(ctx context.Context, header http.Header, join func(*lane)) (withdraw func()) {
	name := rand.Text() // nobody can guess it
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.offers[name] = offer{ctx, callerOf(ctx), join}
	header.Set(api.LaneHeader, name)
	return func() { ls.take(ctx, name) }
}

// take ends the offer of that name, and returns it where it was made to the caller
// of ctx.
func (ls *lanes) take(ctx context.Context, name string) (offer, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	o, ok := ls.offers[name]
	if !ok || o.caller != callerOf(ctx) {
		return offer{}, false
	}
	delete(ls.offers, name)
	return o, true
}

// ServeHTTP makes the connection the lane of a call, until that is over.
func (ls *lanes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		http.Error(w, "a lane is a connection of HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	o, ok := ls.take(r.Context(), r.Header.Get(api.LaneHeader))
	if !ok {
		http.Error(w, "no call of this caller has such a lane, or it was opened before", http.StatusNotFound)
		return
	}
	l := newLane(w)
	if l.begin() != nil {
		return // the caller has gone
	}
	o.join(l)
	l.serve(o.call)
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
	ended   chan struct{} // closed when the call has closed it

	mu     sync.Mutex // held while writing
	head   []byte
	closed bool
}

func newLane(w http.ResponseWriter) *lane {
	return &lane{w: w, control: http.NewResponseController(w), ended: make(chan struct{})}
}

// begin tells the caller that there is a lane.
func (l *lane) begin() error {
	l.w.Header().Set("Content-Type", "application/octet-stream")
	l.w.Header().Set("Transfer-Encoding", "identity") // no chunks: each message says its length
	return l.control.Flush()
}

// serve returns when nothing writes to l any more. The end of the call is the
// end of a write that its caller does not take.
func (l *lane) serve(call context.Context) {
	select {
	case <-l.ended:
	case <-call.Done():
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
