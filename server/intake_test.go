package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/peer"
)

// listing is a runtime without sandboxes.
type listing struct{ Sandboxes }

func (listing) List(context.Context) ([]runtime.Info, error) { return nil, nil }

// taking is a runtime whose commands take all input.
type taking struct{ execsOnly }

// execsOnly gives Execs another name: one of its methods is called like it.
type execsOnly interface{ Execs }

func (taking) SendInput(_ context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
	return runtime.InputState{Offset: int64(len(req.Data))}, nil
}

// serveUsers serves on a socket where X-User says whose call it is, and root's is
// one without.
func serveUsers(t *testing.T, timeout time.Duration) (socket string) {
	h := New(Deps{Sandboxes: listing{}, Execs: taking{}, ReadTimeout: timeout, WriteTimeout: timeout})
	return serveSlow(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := peer.User(0, 0, nil, 1)
		if sandbox := r.Header.Get("X-User"); sandbox != "" {
			c = peer.User(1000, 1000, nil, 1).In(sandbox)
		}
		h.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), c)))
	}), time.Hour, time.Hour)
}

// stalled is a body that ends only with its request.
type stalled struct {
	io.Reader
	ctx context.Context
}

func (s stalled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		<-s.ctx.Done()
		err = s.ctx.Err()
	}
	return n, err
}

// stall posts n bytes and does not end the body. It returns the answer.
func stall(t *testing.T, c *http.Client, user string, n int64) (status int, answer string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body := stalled{io.LimitReader(zeros{}, n), ctx}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/caisson.v1.SandboxService/List", body)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/proto")
	req.Header.Set("X-User", user)
	res, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	cancel() // the client waits for what sends the body
	return res.StatusCode, string(text)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestStalledBodies has a sandbox that sends 100 large requests and ends none. Others are
// served meanwhile, and each request gets its answer. TestLargeBodies of the escape suite
// measures the memory.
func TestStalledBodies(t *testing.T) {
	socket := serveUsers(t, 1500*time.Millisecond)
	client := client2(t, socket, new(atomic.Bool))
	var busy, late atomic.Int32
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			switch status, answer := stall(t, client, "a", maxMessage-64<<10); {
			case status == http.StatusTooManyRequests && strings.Contains(answer, "requests are in flight"):
				busy.Add(1)
			case status == http.StatusGatewayTimeout && strings.Contains(answer, "did not come whole within 1.5s"):
				late.Add(1)
			default:
				t.Errorf("%d %.200s", status, answer)
			}
		})
	}
	ended := make(chan struct{})
	go func() { calls.Wait(); close(ended) }()
	other := caissonv1connect.NewSandboxServiceClient(client2(t, socket, new(atomic.Bool)), "http://x")
	for open := true; open; {
		select {
		case <-ended:
			open = false
		case <-time.After(20 * time.Millisecond):
		}
		begun := time.Now()
		if _, err := other.List(t.Context(), connect.NewRequest(&caissonv1.ListRequest{})); err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("another caller: %v after %v", err, time.Since(begun))
		}
	}
	if busy.Load() == 0 { // each request may find the room taken by the others, so all may be refused
		t.Errorf("%d were refused, %d were late", busy.Load(), late.Load())
	}
	if status, answer := stall(t, client, "a", 1<<10); status != http.StatusGatewayTimeout { // all is given back
		t.Errorf("afterwards: %d %s", status, answer)
	}
}

// TestManyUploads has a sandbox whose 48 streams send 4 MiB each at the same time, in
// messages of the size that the client sends. None is refused, as 48 whole messages fit.
func TestManyUploads(t *testing.T) {
	socket := serveUsers(t, time.Minute)
	one, other := client2(t, socket, new(atomic.Bool)), client2(t, socket, new(atomic.Bool))
	var calls sync.WaitGroup
	for i := range 48 {
		calls.Go(func() {
			client := []*http.Client{one, other}[i%2]
			input := caissonv1connect.NewExecServiceClient(client, "http://x").StreamInput(t.Context())
			input.RequestHeader().Set("X-User", "a")
			err := input.Send(&caissonv1.SendInputRequest{Ref: "a", Id: "e"})
			for n := 0; err == nil && n < 32; n++ {
				err = input.Send(&caissonv1.SendInputRequest{Data: make([]byte, 128<<10)})
			}
			_, err2 := input.CloseAndReceive()
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// TestStalledMessage has a stream whose second message does not come whole, and
// one that says nothing for long.
func TestStalledMessage(t *testing.T) {
	const timeout = 300 * time.Millisecond
	socket := serveUsers(t, timeout)
	for name, whole := range map[string]bool{"a part of a message": false, "silence": true} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/caisson.v1.ExecService/StreamInput", r)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/connect+json")
			start := `{"ref": "a", "id": "e", "data": "eA=="}`
			go func() {
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(start))), start...))
				if whole {
					time.Sleep(4 * timeout)
					_ = w.Close()
				} else {
					_, _ = w.Write([]byte{0, 0, 0, 1, 0, '{'})
				}
			}()
			res, err := client2(t, socket, new(atomic.Bool)).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			if err != nil || bytes.Contains(answer, []byte("SBX-003")) == whole || bytes.Contains(answer, []byte(`"offset"`)) != whole {
				t.Errorf("%q, %v", answer, err)
			}
		})
	}
}

// TestUnendedRequest has a call of one request, which is there whole and does not
// end.
func TestUnendedRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := `{"spec": {"exec": {"args": ["x"]}}}`
	whole := strings.NewReader(string(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/caisson.v1.SandboxService/Run", stalled{whole, ctx})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := client2(t, serveUsers(t, 300*time.Millisecond), new(atomic.Bool)).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(res.Body)
	cancel()
	if res.Body.Close(); !bytes.Contains(answer, []byte("SBX-003")) {
		t.Errorf("%q", answer)
	}
}

// TestKept: what is decoded counts until its call is over, where it is large.
func TestKept(t *testing.T) {
	in := newIntake(time.Hour, 0)
	bounds := []bound{{"a", 1 << 20, 0}}
	open := func(size int) (*incoming, error) {
		b := &incoming{ReadCloser: io.NopCloser(io.LimitReader(zeros{}, int64(size))), intake: in, bounds: bounds}
		if err := b.begin(); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, b)
		return b, errors.Join(err, b.decoded())
	}
	var all []*incoming
	refused := 0
	for range 10 * keptFactor { // twice as many as fit
		b, err := open(200 << 10)
		all = append(all, b)
		switch {
		case err == nil:
		case sbxerr.Of(err) == sbxerr.Busy:
			refused++
		default:
			t.Error(err)
		}
	}
	if refused < 5*keptFactor || refused == len(all) {
		t.Errorf("%d of %d were refused", refused, len(all))
	}
	small, err := open(10 << 10)
	if err != nil {
		t.Errorf("a small one: %v", err)
	}
	for _, b := range append(all, small) {
		b.end()
	}
	if left := len(in.coming.held) + len(in.kept.held); left > 0 {
		t.Errorf("left: %v, %v", in.coming.held, in.kept.held)
	}
}

// TestUndecodedBounds: a caller has a bound of its own, and cannot use up root's.
func TestUndecodedBounds(t *testing.T) {
	ann, bob := peer.User(1001, 1001, nil, 1), peer.User(1002, 1002, nil, 1)
	in := newIntake(0, 0)
	as := func(c peer.Caller, bytes int) bool {
		return in.coming.take(undecodedOf(peer.NewContext(t.Context(), c)), bytes)
	}
	if !as(ann, 7<<20) || as(ann, 1<<20) {
		t.Error("a user has not 7 MiB")
	}
	in.coming.give(undecodedOf(peer.NewContext(t.Context(), ann)), 7<<20)
	for _, step := range []struct {
		name  string
		c     peer.Caller
		bytes int
		ok    bool
	}{
		{"a sandbox", ann.In("one"), 7 << 20, true},
		{"more of it, as somebody else", bob.In("one"), 1 << 20, false},
		{"sandboxes together", ann.In("two"), 1 << 20, false},
		{"another sandbox, with little", ann.In("two"), little, true},
		{"a user with much", bob, 1 << 20, false},
		{"a user with little", bob, little, true},
		{"another with little", peer.User(1003, 1003, nil, 1), little, true},
		{"root", peer.User(0, 0, nil, 1), 4 << 20, true},
		{"a user with little, of what root left", peer.User(1004, 1004, nil, 1), little, true},
		{"all", peer.User(0, 0, nil, 1), 1 << 20, false},
	} {
		if as(step.c, step.bytes) != step.ok {
			t.Errorf("%s: want %v", step.name, step.ok)
		}
	}
}
