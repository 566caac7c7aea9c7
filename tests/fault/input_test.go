package fault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// Input reaches its command exactly once, also where the daemon is killed at any moment
// while it sends (F01): into a pipe, and into a terminal.
func TestKilledWhileItSendsInput(t *testing.T) {
	const kills = 25
	for name, tt := range map[string]struct {
		part int64 // bytes before each kill
		spec *caissonv1.ExecSpec
	}{
		"pipe": {64 << 20 / kills, &caissonv1.ExecSpec{Shell: "echo ready; exec sha256sum"}},
		"terminal": {40_000, &caissonv1.ExecSpec{
			Shell: fmt.Sprintf("stty raw -echo; echo ready; head -c %d | sha256sum", 40_000*kills), Tty: &caissonv1.WinSize{Rows: 24, Cols: 80},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := harness.Start(t)
			d.Run(t, "create", "--name", "reads")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			sent := sha256.New()
			random := rand.NewChaCha8([32]byte{1})
			given := make(chan io.Reader, 1)
			stdin := io.TeeReader(&parts{list: given}, sent)
			client := api.New(api.Options{Socket: d.Socket, Reconnect: time.Minute})
			out := &readyWriter{ready: make(chan struct{})}
			done := make(chan error, 1)
			go func() {
				_, err := client.Exec(ctx, "reads", tt.spec, api.IO{Stdin: stdin, Stdout: out})
				done <- err
			}()
			for kill := range kills {
				select {
				case <-out.ready: // one that is killed before cannot be repeated
				case err := <-done:
					t.Fatalf("the call ended before its input: %v", err)
				}
				select {
				case given <- io.LimitReader(random, tt.part):
				case err := <-done:
					t.Fatalf("the call ended after %d kills: %v", kill, err)
				}
				killSoon(t, d)
			}
			close(given)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantSum(t, out.String(), sent)
			d.Run(t, "rm", "--force", "reads")
			d.AwaitNoSandbox(t)
		})
	}
}

// killSoon kills the daemon at some moment of the next 10 ms, and starts it again.
func killSoon(t *testing.T, d *harness.Daemon) {
	t.Helper()
	time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
	d.Kill(t)
	d.Launch(t)
}

// wantSum compares the sum of what a command read, which it printed, with that of what was sent.
func wantSum(t *testing.T, out string, sent hash.Hash) {
	t.Helper()
	if got, want := strings.Fields(out), hex.EncodeToString(sent.Sum(nil)); len(got) != 3 || got[1] != want {
		t.Errorf("the command printed %q, want the sum %s", out, want)
	}
}

// readyWriter keeps output, and tells when there is some.
type readyWriter struct {
	bytes.Buffer
	ready chan struct{}
}

func (w *readyWriter) Write(p []byte) (int, error) {
	if w.Len() == 0 && len(p) > 0 {
		close(w.ready)
	}
	return w.Buffer.Write(p)
}

// Input that comes as one stream reaches its command exactly once if the caller goes on
// where the command stands (F01).
func TestKilledWhileItStreamsInput(t *testing.T) {
	const (
		kills = 12
		size  = 26 << 20
	)
	d := harness.Start(t)
	d.Run(t, "create", "--name", "reads")
	client := api.New(api.Options{Socket: d.Socket, Reconnect: time.Minute})
	e, err := client.Start(t.Context(), "reads", &caissonv1.ExecSpec{Shell: "echo ready; exec sha256sum", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(data) // never fails
	given := &growing{data: data}
	given.grow = sync.NewCond(&given.mu)
	streams := make(chan int, 1)
	go func() {
		n := 0
		for at := int64(0); at < size; n++ {
			at = streamInput(t, d, client, e.Id, at, given)
		}
		streams <- n
	}()
	for range kills {
		given.more(size/kills + 1)
		killSoon(t, d)
	}
	if n := <-streams; n < kills/3 {
		t.Errorf("%d kills broke only %d streams", kills, n)
	}
	if _, err := client.SendInput(t.Context(), &caissonv1.SendInputRequest{Ref: "reads", Id: e.Id, Offset: proto.Int64(size), Close: true}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := client.Attach(t.Context(), "reads", e.Id, api.AttachOptions{}, api.IO{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	d.Kill(t)
	d.Launch(t)
	// A daemon that never knew the process still knows the count.
	state, err := client.SendInput(t.Context(), &caissonv1.SendInputRequest{Ref: "reads", Id: e.Id, Offset: proto.Int64(size), Close: true})
	if err != nil || !state.Closed || state.Offset != size {
		t.Errorf("after the end: %v, %v", state, err)
	}
	sum := sha256.New()
	sum.Write(data)
	wantSum(t, out.String(), sum)
	d.Run(t, "rm", "--force", "reads")
	d.AwaitNoSandbox(t)
}

// streamInput sends the data from an offset on until the stream ends or breaks, and returns
// how many bytes the command has.
func streamInput(t *testing.T, d *harness.Daemon, client *api.Client, id string, at int64, given *growing) int64 {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}
	tr := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	url := fmt.Sprintf("http://caisson/v1/sandboxes/reads/execs/%s/input?offset=%d", id, at)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, &growingReader{growing: given, at: at})
	if err != nil {
		t.Error(err)
		return int64(len(given.data))
	}
	if res, err := tr.RoundTrip(req); err == nil {
		res.Body.Close()
	}
	for {
		state, err := client.SendInput(t.Context(), &caissonv1.SendInputRequest{Ref: "reads", Id: id})
		if err == nil {
			return state.Offset
		}
		if t.Context().Err() != nil {
			return int64(len(given.data))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// growing is data of which more and more may be read.
type growing struct {
	data []byte

	mu    sync.Mutex
	grow  *sync.Cond
	given int64
}

func (g *growing) more(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.given = min(g.given+n, int64(len(g.data)))
	g.grow.Broadcast()
}

// growingReader reads what may be read, and waits for more until it is closed.
type growingReader struct {
	*growing
	at     int64
	closed bool
}

func (r *growingReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.at == r.given && !r.closed && r.at < int64(len(r.data)) {
		r.grow.Wait()
	}
	if r.closed || r.at >= int64(len(r.data)) {
		return 0, io.EOF
	}
	n := copy(p, r.data[r.at:r.given])
	r.at += int64(n)
	return n, nil
}

func (r *growingReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.grow.Broadcast()
	return nil
}

// parts reads one reader after another, each as soon as it is given.
type parts struct {
	list <-chan io.Reader
	now  io.Reader
}

func (p *parts) Read(b []byte) (int, error) {
	for {
		if p.now == nil {
			next, ok := <-p.list
			if !ok {
				return 0, io.EOF
			}
			p.now = next
		}
		n, err := p.now.Read(b)
		if err == io.EOF {
			p.now, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
