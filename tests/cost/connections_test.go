package cost

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// crowd are users who together have more than one may.
const crowd = "peers: [{uids: [54331, 54332, 54333, 54334, 54335, 54336]}]\n"

// connect opens up to n connections as a user, and returns how many the daemon answers on.
func connect(t *testing.T, u harness.User, n int) (open int) {
	t.Helper()
	for range n {
		conn := u.Dial(t) // until the test ends
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /v1/ping HTTP/1.1\r\nHost: caisson\r\n\r\n") // one that was closed shows in the answer
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		open++
	}
	return open
}

// Users who open as many connections as they can leave others some.
func TestConnections(t *testing.T) {
	d := harness.StartWith(t, crowd)
	for uid, want := range map[uint32]int{54331: 512, 54332: 512} {
		if n := connect(t, d.User(t, uid), 520); n != want {
			t.Errorf("the control: %d has %d connections, want %d", uid, n, want)
		}
	}
	third, fourth := connect(t, d.User(t, 54334), 520), connect(t, d.User(t, 54335), 520)
	if third+fourth > 512+16 {
		t.Errorf("the last users have %d and %d connections", third, fourth)
	}
	d.User(t, modest).Run(t, "run", "--", "true")
	d.Run(t, "run", "--", "true")
}

// follow opens up to n calls that last until the test ends, and returns how many began, and
// what the daemon says of the rest.
func follow(t *testing.T, u harness.User, n int) (began int, refusal string) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return u.Dial(t), nil }}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var all sync.WaitGroup
	var mu sync.Mutex
	for range n {
		all.Go(func() { // each begins only after half a second without an event
			var res *http.Response
			err := errors.New("no attempt")
			for try := 0; err != nil && try < 3; try++ { // a connection may be cut off before the call begins
				var r *http.Request
				if r, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://caisson/v1/events?follow=true", nil); err == nil {
					res, err = client.RoundTrip(r)
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if res.StatusCode == http.StatusOK {
				began++
				return
			}
			body, _ := io.ReadAll(res.Body) // cut off, it does not say what is asked for
			_ = res.Body.Close()
			refusal = string(body)
		})
	}
	all.Wait()
	return began, refusal
}

// A connection of HTTP/2 has many calls: users who make as many as they can neither fill the
// daemon's memory nor lock others out.
func TestCallsUnderWay(t *testing.T) {
	d := harness.StartWith(t, crowd)
	d.User(t, modest).Run(t, "run", "--", "true")
	resetPeak(t, d.PID())
	_, before := use(t, d.PID())
	began, refusal := follow(t, d.User(t, greedy), 530)
	if began != 512 || !strings.Contains(refusal, "SBX-113") {
		t.Errorf("%d calls of one user, then %q", began, refusal)
	}
	_, peak := use(t, d.PID())
	t.Logf("%d calls take %d KiB", began, peak-before)
	if peak-before > mostMemory {
		t.Errorf("%d calls take %d KiB", began, peak-before)
	}
	for _, uid := range []uint32{54332, 54334, 54335} {
		more, _ := follow(t, d.User(t, uid), 530)
		began += more
	}
	if most := 1536 + 16; began > most || began < 1536 {
		t.Errorf("%d calls of all users", began)
	}
	d.User(t, modest).Run(t, "run", "--", "true")
	d.Run(t, "run", "--", "true")
}
