package cost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// Users of the tests.
const (
	greedy = 54331
	third  = 54332
	modest = 54333
)

const users = "peers: [{uids: [54331, 54332, 54333]}]\n"

// hold sends size bytes of a request that never ends. The daemon may refuse it meanwhile.
func hold(t *testing.T, u harness.User, size int) net.Conn {
	t.Helper()
	conn := u.Dial(t)
	head := fmt.Sprintf("POST /v1/run HTTP/1.1\r\nHost: caisson\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size+10)
	body := append([]byte(head+`{"args":["`), bytes.Repeat([]byte("x"), size-10)...)
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(body) // what is refused shows in the answer
	return conn
}

// refused reports whether the daemon answers a request before it has come whole.
func refused(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _ := conn.Read(answer) // at the deadline, nothing came
	return bytes.Contains(answer[:n], []byte("429"))
}

// Requests that never end leave callers with small ones their share.
func TestUnfinishedRequests(t *testing.T) {
	d := harness.StartWith(t, users)
	a, b, m := d.User(t, greedy), d.User(t, third), d.User(t, modest)
	m.Run(t, "run", "--", "true")
	for n := range 2 {
		if refused(t, hold(t, a, 3_600_000)) {
			t.Fatalf("the control: request %d is refused", n)
		}
	}
	if !refused(t, hold(t, a, 3_600_000)) {
		t.Error("the control: one user may hold more than 7 MiB")
	}
	hold(t, b, 3_050_000)
	for range 40 {
		hold(t, b, 1000)
	}
	for range 3 {
		m.Run(t, "run", "--", "true")
	}
}

// A user who runs and asks for as many sandboxes as may be leaves root a place and other users
// their turns.
func TestPlacesToRun(t *testing.T) {
	d := harness.StartWith(t, users+"sandboxes: {max_running: 3, queue: 40}\n")
	a, m := d.User(t, greedy), d.User(t, modest)
	for n := range 2 {
		a.Run(t, "create", "--name", fmt.Sprint("idle", n))
	}
	d.Run(t, "run", "--", "true") // root's place

	var all sync.WaitGroup
	results := make([]harness.Result, 30)
	for n := range results {
		all.Go(func() { results[n] = a.Try("run", "--", "sleep", "0.2") })
	}
	waiting := func() int {
		var info struct {
			Queued int
		}
		d.Run(t, "info", "-o", "json").JSON(t, &info)
		return info.Queued
	}
	for end := time.Now().Add(20 * time.Second); waiting() < 26; time.Sleep(20 * time.Millisecond) { // no event tells of a queue
		if time.Now().After(end) {
			t.Fatalf("the control: %d wait", waiting())
		}
	}
	served := make(chan harness.Result, 1)
	go func() { served <- m.Try("run", "--", "true") }()
	for end := time.Now().Add(20 * time.Second); waiting() < 27; time.Sleep(20 * time.Millisecond) { // likewise
		if time.Now().After(end) {
			t.Fatalf("the control: the modest user does not wait: %d", waiting())
		}
	}
	d.Run(t, "run", "--", "true") // root's place, still
	a.Run(t, "rm", "--force", "idle0")
	if r := <-served; r.Code != 0 {
		t.Errorf("the modest user: %+v", r)
	}
	if left := waiting(); left < 20 {
		t.Errorf("the modest user was served after all but %d of the greedy one's", left)
	}
	a.Run(t, "rm", "--force", "idle1")
	all.Wait()
	refused := 0
	for _, r := range results {
		switch {
		case r.Code == 0:
		case strings.Contains(r.Stderr, "SBX-113"):
			refused++
		default:
			t.Errorf("%+v", r)
		}
	}
	if refused > 4 { // of 40 places: four are root's, ten are for other users
		t.Errorf("%d were refused", refused)
	}
}

// A user who makes many events drops none of other users'.
func TestEventsOfOthers(t *testing.T) {
	d := harness.StartWith(t, users)
	a, m := d.User(t, greedy), d.User(t, modest)
	m.Run(t, "create", "--name", "modest")
	a.Run(t, "create", "--name", "greedy")
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return a.Dial(t), nil
	}}}
	defer client.CloseIdleConnections()
	// Each call is an event of some 4 KiB. All that are kept have 16 MiB.
	body, err := json.Marshal(map[string]any{"exec": map[string]any{"args": []string{"/nosuch", strings.Repeat("x", 4000)}}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1400 {
				res, err := client.Post("http://caisson/v1/sandboxes/greedy/execs?wait=true", "application/json", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body) // what it says does not matter
				_ = res.Body.Close()
			}
		})
	}
	all.Wait()
	count := func(u harness.User, name string) int {
		return strings.Count(u.Run(t, "events", "--filter", "sandbox="+name, "--filter", "type=sandbox.created").Stdout, "sandbox.created")
	}
	if n := count(a, "greedy"); n != 0 {
		t.Errorf("the control: the greedy user's oldest event is kept")
	}
	if n := count(m, "modest"); n != 1 {
		t.Errorf("%d of the modest user's events are kept", n)
	}
	if out := m.Run(t, "events").Stdout; strings.Contains(out, "events.lost") {
		t.Errorf("the modest user misses events:\n%s", out)
	}
}
