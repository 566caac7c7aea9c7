package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// openLane opens the lane of a call that was answered, and reads nothing of what
// comes in it.
func openLane(t *testing.T, socket string, call interface{ ResponseHeader() http.Header }) *bufio.Reader {
	t.Helper()
	res, body := getLane(t, socket, call.ResponseHeader().Get(api.LaneHeader))
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Fatalf("no lane: %v", res)
	}
	return body
}

func getLane(t *testing.T, socket, name string) (*http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", api.LanePath, api.LaneHeader, name)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res, r
}

type runCall = connect.BidiStreamForClient[caissonv1.RunRequest, caissonv1.RunResponse]

// startRun begins a run whose messages the test sends and reads itself.
func startRun(t *testing.T, socket string) *runCall {
	t.Helper()
	client := caissonv1connect.NewSandboxServiceClient(client2(t, socket, new(atomic.Bool)), "http://x")
	stream := client.Run(t.Context())
	t.Cleanup(func() { _ = stream.CloseResponse() })
	spec := &caissonv1.RunSpec{Sandbox: &caissonv1.SandboxSpec{}, Exec: &caissonv1.ExecSpec{Args: []string{"x"}}}
	if err := stream.Send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Start{Start: spec}}); err != nil {
		t.Fatal(err)
	}
	return stream
}

// next returns the next message of the call.
func next(t *testing.T, stream *runCall) *caissonv1.RunResponse {
	t.Helper()
	m, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// told is a runtime whose command writes what it is told to.
type told struct {
	Sandboxes
	stdout chan string
}

func (s told) Run(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case p, ok := <-s.stdout:
			if !ok {
				err := rio.Stderr.(runtime.Skipper).Skip(300)
				_, err2 := io.WriteString(rio.Stderr, "err")
				return &runtime.Result{ExitCode: 3}, errors.Join(err, err2)
			}
			if _, err := io.WriteString(rio.Stdout, p); err != nil {
				return nil, err
			}
		}
	}
}

// TestLaneMessages: a caller of any language can read what comes in a lane, with
// a library for protobuf.
func TestLaneMessages(t *testing.T) {
	t.Parallel()
	s := told{stdout: make(chan string)}
	socket := serveSlow(t, New(Deps{Sandboxes: s}), time.Hour, time.Hour)
	stream := startRun(t, socket)
	s.stdout <- "before"
	if m := next(t, stream); string(m.GetStdout()) != "before" {
		t.Fatalf("got %v", m)
	}
	lane := openLane(t, socket, stream)
	if m := next(t, stream); !m.GetOutputMoved() {
		t.Fatalf("got %v", m)
	}
	s.stdout <- "behind"
	close(s.stdout)
	var got []string
	for {
		size, err := binary.ReadUvarint(lane)
		if err != nil {
			t.Fatal(err)
		}
		if size == 0 {
			break
		}
		data, m := make([]byte, size), new(caissonv1.RunResponse)
		if _, err := io.ReadFull(lane, data); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d", m.GetStdout(), m.GetStderr(), m.GetStderrSkipped()))
	}
	if text := fmt.Sprintf("%q", got); text != `["behind  0" "  300" " err 0"]` {
		t.Errorf("in the lane: %s", text)
	}
	if _, err := lane.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	if m := next(t, stream); m.GetResult().GetExitCode() != 3 {
		t.Errorf("got %v", m)
	}
}

// TestLaneOfNobody: a name that means nothing opens nothing, and no lane is opened
// twice, or when its call is over.
func TestLaneOfNobody(t *testing.T) {
	t.Parallel()
	s := told{stdout: make(chan string)}
	socket := serveSlow(t, New(Deps{Sandboxes: s}), time.Hour, time.Hour)
	refused := func(what, name string) {
		t.Helper()
		if res, body := getLane(t, socket, name); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", what, res.Status)
		} else if text, _ := body.ReadString('\n'); !strings.Contains(text, "no call of this caller") {
			t.Errorf("%s: %q", what, text)
		}
	}
	refused("no name", "")
	refused("an unknown name", "absent")
	stream := startRun(t, socket)
	s.stdout <- "x"
	if m := next(t, stream); string(m.GetStdout()) != "x" {
		t.Fatalf("got %v", m)
	}
	openLane(t, socket, stream)
	if m := next(t, stream); !m.GetOutputMoved() {
		t.Fatalf("got %v", m)
	}
	refused("a second lane", stream.ResponseHeader().Get(api.LaneHeader))
	other := startRun(t, socket)
	s.stdout <- "x" // to one of the two
	close(s.stdout)
	for err := error(nil); err == nil; {
		_, err = other.Receive()
	}
	refused("after the end", other.ResponseHeader().Get(api.LaneHeader))
}

// TestStuckLane has a caller that takes nothing of its lane: its run is taken
// down as it is without one, and so it is when the caller leaves the call alone.
func TestStuckLane(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		leave   func(*testing.T, *flood, *runCall)
	}{
		"it takes nothing": {300 * time.Millisecond, func(*testing.T, *flood, *runCall) {}},
		"it leaves the call": {time.Hour, func(t *testing.T, f *flood, c *runCall) {
			f.stuck(t)
			_ = c.CloseRequest()
			_ = c.CloseResponse()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlood()
			begin := make(chan struct{})
			socket := serveSlow(t, New(Deps{Sandboxes: waiting{endless{flood: f}, begin}, WriteTimeout: tt.timeout}), time.Hour, time.Hour)
			stream := startRun(t, socket)
			if m := next(t, stream); string(m.GetStdout()) != "x" {
				t.Fatalf("got %v", m)
			}
			openLane(t, socket, stream)
			if m := next(t, stream); !m.GetOutputMoved() {
				t.Fatalf("got %v", m)
			}
			close(begin)
			tt.leave(t, f, stream)
			if err := soon(t, "end of the output", f.ended); !errors.Is(err, sbxerr.Canceled) {
				t.Errorf("the output ended with %v", err)
			}
			if err := soon(t, "end of the run", f.cause); err == nil {
				t.Error("the run goes on")
			}
		})
	}
}

// waiting says a word, and is endless from begin on.
type waiting struct {
	endless
	begin chan struct{}
}

func (w waiting) Run(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
	if _, err := io.WriteString(rio.Stdout, "x"); err != nil {
		return nil, err
	}
	<-w.begin
	return w.endless.Run(ctx, req, rio)
}

// TestLaneIsItsCallers: not another's, and not there twice, or late.
func TestLaneIsItsCallers(t *testing.T) {
	as := func(c peer.Caller) context.Context { return peer.NewContext(t.Context(), c) }
	ann, bob := peer.User(peerAnn, 1, nil, 1), peer.User(peerBob, 1, nil, 1)
	ls := newLanes()
	offer := func(c peer.Caller) (name string, withdraw func()) {
		h := http.Header{}
		withdraw = ls.offer(as(c), h, func(*lane) {})
		return h.Get(api.LaneHeader), withdraw
	}
	taken := func(ctx context.Context, name string) bool {
		_, ok := ls.take(ctx, name)
		return ok
	}
	name, _ := offer(ann)
	for who, ctx := range map[string]context.Context{
		"another user": as(bob), "a sandbox of hers": as(ann.In("p")), "nobody": t.Context(), "root": as(peer.User(0, 0, nil, 1)),
	} {
		if taken(ctx, name) {
			t.Errorf("%s got her lane", who)
		}
	}
	if !taken(as(peer.User(peerAnn, 1, nil, 2)), name) {
		t.Error("she did not get it herself")
	}
	if taken(as(ann), name) {
		t.Error("it was opened twice")
	}
	inside, _ := offer(ann.In("p"))
	if taken(as(ann), inside) || taken(as(ann.In("q")), inside) || !taken(as(bob.In("p")), inside) {
		t.Error("the lane of a sandbox is not the sandbox's alone")
	}
	late, withdraw := offer(ann)
	withdraw()
	if taken(as(ann), late) || len(ls.offers) != 0 {
		t.Errorf("a lane was opened whose call is over, or %d are left", len(ls.offers))
	}
}

// TestLaneNeedsHTTP1: in HTTP/2 it would gain nothing, and not count as
// a connection.
func TestLaneNeedsHTTP1(t *testing.T) {
	t.Parallel()
	socket := serveSlow(t, New(Deps{}), time.Hour, time.Hour)
	res := get(t, client2(t, socket, new(atomic.Bool)), api.LanePath)
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusHTTPVersionNotSupported || !bytes.Contains(text, []byte("HTTP/1.1")) {
		t.Errorf("%s %q", res.Status, text)
	}
}

// TestQuietLane: a lane in which nothing comes for a long time stays.
func TestQuietLane(t *testing.T) {
	t.Parallel()
	s := told{stdout: make(chan string)}
	const timeout = 200 * time.Millisecond
	h := New(Deps{Sandboxes: s, WriteTimeout: timeout, ReadTimeout: timeout})
	socket := serveSlow(t, h, time.Hour, time.Hour)
	stream := startRun(t, socket)
	s.stdout <- "x"
	if m := next(t, stream); string(m.GetStdout()) != "x" {
		t.Fatalf("got %v", m)
	}
	lane := openLane(t, socket, stream)
	if m := next(t, stream); !m.GetOutputMoved() {
		t.Fatalf("got %v", m)
	}
	for range 2 {
		time.Sleep(3 * timeout) // past what bounds a body and a write
		s.stdout <- "x"
		if p := make([]byte, 4); !readAll(lane, p) || string(p) != "\x03\x12\x01x" {
			t.Fatalf("in the lane: %q", p)
		}
	}
}

func readAll(r io.Reader, p []byte) bool {
	_, err := io.ReadFull(r, p)
	return err == nil
}
