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
	"github.com/caisson-run/caisson/sbxerr"
)

// openLane asks for a lane and reads nothing of what comes in it.
func openLane(t *testing.T, socket string) (name string, body *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", api.LanePath)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	name = res.Header.Get(api.LaneHeader)
	if res.StatusCode != http.StatusOK || name == "" || !res.Close {
		t.Fatalf("no lane: %v", res)
	}
	return name, r
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

func sayLane(t *testing.T, stream *runCall, name string) {
	t.Helper()
	if err := stream.Send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Lane{Lane: name}}); err != nil {
		t.Fatal(err)
	}
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

func (s told) Run(ctx context.Context, _ runtime.Request, rio runtime.IO) (*runtime.Result, error) {
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
	name, lane := openLane(t, socket)
	sayLane(t, stream, name)
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

// TestLaneOfNobody: a name that means nothing changes nothing, and a second lane
// is refused.
func TestLaneOfNobody(t *testing.T) {
	t.Parallel()
	s := told{stdout: make(chan string)}
	socket := serveSlow(t, New(Deps{Sandboxes: s}), time.Hour, time.Hour)
	stream := startRun(t, socket)
	name, _ := openLane(t, socket)
	sayLane(t, stream, "absent")
	s.stdout <- "x"
	if m := next(t, stream); string(m.GetStdout()) != "x" {
		t.Fatalf("got %v", m)
	}
	sayLane(t, stream, name)
	if m := next(t, stream); !m.GetOutputMoved() {
		t.Fatalf("got %v", m)
	}
	sayLane(t, stream, name)
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a second lane: %v", err)
	}
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
			lane, _ := openLane(t, socket)
			sayLane(t, stream, lane)
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

// waiting is endless from begin on.
type waiting struct {
	endless
	begin chan struct{}
}

func (w waiting) Run(ctx context.Context, req runtime.Request, rio runtime.IO) (*runtime.Result, error) {
	<-w.begin
	return w.endless.Run(ctx, req, rio)
}

// TestLaneIsClaimedByItsCaller: not by another, not twice, and not late.
func TestLaneIsClaimedByItsCaller(t *testing.T) {
	as := func(c peer.Caller) context.Context { return peer.NewContext(t.Context(), c) }
	ann, bob := peer.User(peerAnn, 1, nil, 1), peer.User(peerBob, 1, nil, 1)
	ls := newLanes(time.Hour)
	name := ls.add(&lane{caller: callerOf(as(ann)), claimed: make(chan struct{})})
	for who, ctx := range map[string]context.Context{
		"another user": as(bob), "a sandbox of hers": as(ann.In("p")), "nobody": t.Context(), "root": as(peer.User(0, 0, nil, 1)),
	} {
		if ls.claim(ctx, name) != nil {
			t.Errorf("%s got her lane", who)
		}
	}
	if ls.claim(as(peer.User(peerAnn, 1, nil, 2)), name) == nil {
		t.Error("she did not get it herself")
	}
	if ls.claim(as(ann), name) != nil {
		t.Error("it was claimed twice")
	}
	inside := ls.add(&lane{caller: callerOf(as(ann.In("p"))), claimed: make(chan struct{})})
	if ls.claim(as(ann), inside) != nil || ls.claim(as(ann.In("q")), inside) != nil || ls.claim(as(bob.In("p")), inside) == nil {
		t.Error("the lane of a sandbox is not the sandbox's alone")
	}
	late := ls.add(&lane{caller: callerOf(as(ann)), claimed: make(chan struct{})})
	ls.remove(late)
	if ls.claim(as(ann), late) != nil || len(ls.waiting) != 0 {
		t.Errorf("a lane that ended was claimed, or %d are left", len(ls.waiting))
	}
}

// TestUnclaimedLane ends, without a message.
func TestUnclaimedLane(t *testing.T) {
	t.Parallel()
	ls := newLanes(100 * time.Millisecond)
	mux := http.NewServeMux()
	mux.Handle("GET "+api.LanePath, ls)
	socket := serveSlow(t, mux, time.Hour, time.Hour)
	_, body := openLane(t, socket)
	if rest, err := io.ReadAll(body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.waiting) != 0 {
		t.Errorf("%d lanes wait", len(ls.waiting))
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
	h := boundBody(New(Deps{Sandboxes: s, WriteTimeout: timeout}), timeout)
	socket := serveSlow(t, h, time.Hour, time.Hour)
	stream := startRun(t, socket)
	name, lane := openLane(t, socket)
	sayLane(t, stream, name)
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
