package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// sleeper is what inspect tells of a sandbox that is paused when it is idle.
type sleeper struct {
	State, Name string
	PausedBy    string     `json:"paused_by"`
	OnIdle      string     `json:"on_idle"`
	IdleSince   *time.Time `json:"idle_since"`
	IdleAt      *time.Time `json:"idle_at"`
}

func sleeperOf(t *testing.T, d *harness.Daemon, ref string) (s sleeper) {
	t.Helper()
	d.Run(t, "inspect", "--all", ref).JSONIn(t, "sandbox", &s)
	return s
}

// drowsy makes a sandbox that is paused when it was idle for a second.
func drowsy(t *testing.T, d *harness.Daemon, name string, flags ...string) {
	t.Helper()
	box(t, d, name, append([]string{"--idle-timeout", "1s", "--on-idle", "pause"}, flags...)...)
}

// awaitAsleep asks and asks, as a peer does that only polls.
func awaitAsleep(t *testing.T, d *harness.Daemon, ref string) {
	t.Helper()
	await(t, "the pause of "+ref, func() bool {
		d.Run(t, "stats", "--no-stream", ref)
		list(t, d)
		return sleeperOf(t, d, ref).PausedBy == "idle"
	})
}

// TestIdlePause: a sandbox in which nothing works is paused, and whoever uses it wakes it.
//
//caisson:kernel
func TestIdlePause(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	drowsy(t, d, "one")
	drowsy(t, d, "gone", "--ttl", "1h")
	if s := sleeperOf(t, d, "gone"); s.OnIdle != "pause" || s.IdleAt == nil || s.IdleSince == nil || s.IdleAt.Sub(*s.IdleSince).Round(time.Millisecond) != time.Second {
		t.Errorf("when it is to be paused: %+v", s)
	}
	job := start(t, d, "one", "sh", "-c", "trap 'echo heard; exit 3' USR1; cat > /tmp/in & while :; do sleep 1000 & wait; done")
	waiting := strings.TrimSpace(d.Run(t, "exec", "-d", "-i", "one", "--", "cat").Stdout)
	client := api.Dial(d.Socket)
	awaitAsleep(t, d, "one")
	if s := sleeperOf(t, d, "one"); s.State != "paused" || s.OnIdle != "pause" || s.IdleAt != nil || s.IdleSince == nil {
		t.Errorf("a paused one: %+v", s)
	}
	if out := d.Run(t, "ls").Stdout; !strings.Contains(out, "paused (idle)") {
		t.Errorf("ls shows\n%s", out)
	}
	d.Run(t, "logs", "--exec", job, "one") // output that there is wakes nobody
	if s := sleeperOf(t, d, "one"); s.State != "paused" {
		t.Errorf("logs woke it: %+v", s)
	}
	file := filepath.Join(t.TempDir(), "f")
	for name, use := range map[string]func(){
		"exec": func() {
			if out := d.Run(t, "exec", "one", "--", "echo", "up").Stdout; out != "up\n" {
				t.Errorf("it says %q", out)
			}
		},
		"copy": func() { d.Run(t, "cp", "one:/etc/hostname", file) },
		"input": func() {
			if _, err := client.SendInput(t.Context(), &caissonv1.SendInputRequest{Ref: "one", Id: waiting, Data: []byte("x")}); err != nil {
				t.Error(err)
			}
		},
		"stream": func() {
			if to, err := client.Forward(t.Context(), "one", 7000); err == nil {
				to.Close()
			}
		},
		"resume": func() { d.Run(t, "resume", "one") },
	} {
		awaitAsleep(t, d, "one")
		use()
		if s := sleeperOf(t, d, "one"); s.State != "running" || s.PausedBy != "" {
			t.Errorf("after %s: %+v", name, s)
		}
	}
	awaitAsleep(t, d, "one")
	d.Run(t, "kill", "-s", "USR1", "one", job)
	await(t, "the signal", func() bool { return strings.Contains(d.Run(t, "logs", "--exec", job, "one").Stdout, "heard") })
	awaitAsleep(t, d, "gone")
	d.Run(t, "rm", "--force", "gone")
	drowsy(t, d, "stopped")
	job = start(t, d, "stopped", "sh", "-c", "trap 'echo asked; exit' TERM; while :; do sleep 1000 & wait; done")
	awaitAsleep(t, d, "stopped")
	d.Run(t, "stop", "stopped")
	if out := d.Run(t, "logs", "--exec", job, "stopped").Stdout; out != "asked\n" {
		t.Errorf("a stop does not ask the commands: %q", out)
	}
	events := d.Run(t, "events", "--json", "--since", "10m", "--filter", "sandbox=one").Stdout
	for _, want := range []string{`sandbox.paused`, `sandbox.resumed`, `"reason":"idle"`} {
		if !strings.Contains(strings.ReplaceAll(events, " ", ""), want) {
			t.Errorf("no %s in\n%s", want, events)
		}
	}
}

// TestIdlePauseIsNoPersons: what a person paused stays so, also where it was paused before
// because it was idle.
func TestIdlePauseIsNoPersons(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	for _, name := range []string{"early", "late"} {
		drowsy(t, d, name)
		if name == "late" {
			awaitAsleep(t, d, name)
		}
		d.Run(t, "pause", name)
		time.Sleep(1500 * time.Millisecond) // longer than its idle timeout
		d.Refused(t, "SBX-114", "exec", "--json", name, "--", "true")
		if s := sleeperOf(t, d, name); s.State != "paused" || s.PausedBy != "caller" {
			t.Errorf("%s: %+v", name, s)
		}
		d.Run(t, "resume", name)
		d.Run(t, "exec", name, "--", "true")
	}
	d.Run(t, "update", "--on-idle", "remove", "early")
	await(t, "the removal", func() bool { return len(list(t, d)) == 1 })
	d.Run(t, "update", "--idle-timeout", "never", "late")
	d.Run(t, "exec", "late", "--", "true") // it may have been paused before that
	time.Sleep(2500 * time.Millisecond)    // longer than its idle timeout was
	if s := sleeperOf(t, d, "late"); s.State != "running" || s.OnIdle != "" {
		t.Errorf("without a timeout: %+v", s)
	}
	d.Run(t, "update", "--idle-timeout", "1s", "late")
	awaitAsleep(t, d, "late")
}

// TestIdlePauseByProfile: a profile says it for sandboxes that do not, out of the pool too.
func TestIdlePauseByProfile(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles:\n  dozy: {idle_timeout: 1s, on_idle: pause}\npools:\n  - {profile: dozy, size: 1}\n")
	awaitReady(t, d, 1)
	box(t, d, "pooled", "--profile", "dozy")
	box(t, d, "never", "--profile", "dozy", "--idle-timeout", "never")
	box(t, d, "later", "--profile", "dozy", "--idle-timeout", "1h")
	awaitAsleep(t, d, "pooled")
	if out := d.Run(t, "exec", "pooled", "--", "echo", "up").Stdout; out != "up\n" {
		t.Errorf("it says %q", out)
	}
	for name, onIdle := range map[string]string{"never": "", "later": "pause"} {
		if s := sleeperOf(t, d, name); s.State != "running" || s.OnIdle != onIdle || (s.IdleAt == nil) != (onIdle == "") {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if r := d.RunJSON(t, "--profile", "dozy", "--", "sleep", "3"); r.ExitCode != 0 || r.Duration.Duration > 10*time.Second {
		t.Errorf("a run ended with %d after %s", r.ExitCode, r.Duration)
	}
}

// TestIdlePauseRefused: what there is not is refused with what there is.
func TestIdlePauseRefused(t *testing.T) {
	box(t, daemon, "plain")
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"create", "--on-idle", "pause"}, "on idle pause after 0s: give an idle timeout of at least 1s"},
		{[]string{"create", "--on-idle", "pause", "--idle-timeout", "10ms"}, "on idle pause after 10ms: give an idle timeout of at least 1s"},
		{[]string{"create", "--on-idle", "stop", "--idle-timeout", "1m"}, `on idle "stop": it is none of remove, pause`},
		{[]string{"update", "--on-idle", "pause", "plain"}, "on idle pause after 0s: give an idle timeout of at least 1s"},
		{[]string{"update", "--on-idle", "doze", "plain"}, `on idle "doze": it is none of remove, pause`},
	} {
		f := daemon.Refused(t, "SBX-101", append(tt.words, "--json")...)
		if !strings.Contains(f.Error.Message, tt.want) || f.Error.Remedy == "" {
			t.Errorf("%q: %+v", tt.words, f.Error)
		}
	}
}

// TestIdlePauseKeepsAwake: what works, writes or has a connection is not paused, and what does
// the same without doing anything is.
func TestIdlePauseKeepsAwake(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	drowsy(t, d, "stream")
	echoed(t, d, "stream")
	to := dialEcho(t, api.Dial(d.Socket), "stream")
	drowsy(t, d, "cpu")
	start(t, d, "cpu", "sh", "-c", "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.4; done")
	drowsy(t, d, "output")
	start(t, d, "output", "sh", "-c", "while :; do echo tick; sleep 0.5; done")
	drowsy(t, d, "control")
	start(t, d, "control", "sh", "-c", "while :; do sleep 2; done") // a new process takes milliseconds on a slow host
	drowsy(t, d, "port", "-p", "0:7000")
	echoed(t, d, "port")
	conn := dialPort(t, d, "port")
	awaitAsleep(t, d, "control")
	time.Sleep(3 * time.Second) // in which another one would have been paused
	for _, name := range []string{"stream", "cpu", "output", "port"} {
		if s := sleeperOf(t, d, name); s.State != "running" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	to.Close()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	awaitAsleep(t, d, "stream")
	awaitAsleep(t, d, "port")
	dialPort(t, d, "port")
}

// dialPort sends a word to the echo at the published port and has it back.
func dialPort(t *testing.T, d *harness.Daemon, name string) net.Conn {
	t.Helper()
	var box struct {
		Ports []struct {
			HostPort int `json:"host_port"`
		}
	}
	d.Run(t, "inspect", "--all", name).JSONIn(t, "sandbox", &box)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until it listens
		conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", box.Ports[0].HostPort))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		back := make([]byte, 5)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = conn.Write([]byte("hello")); err == nil {
			_, err = io.ReadFull(conn, back)
		}
		if err == nil && bytes.Equal(back, []byte("hello")) {
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatalf("no echo: %q, %v", back, err)
		}
	}
}

// TestIdlePauseOutlivesTheDaemon: the next daemon leaves it paused, and wakes it.
func TestIdlePauseOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	drowsy(t, d, "kept", "-p", "0:7000")
	drowsy(t, d, "used")
	echoed(t, d, "kept")
	start(t, d, "used", "sleep", "1000")
	for range 2 {
		awaitAsleep(t, d, "kept")
		awaitAsleep(t, d, "used")
		d.Kill(t)
		d.Launch(t)
		await(t, "the adoption", func() bool {
			return sleeperOf(t, d, "used").State == "paused" && sleeperOf(t, d, "kept").State == "paused"
		})
		if s := sleeperOf(t, d, "used"); s.PausedBy != "idle" {
			t.Errorf("after a restart: %+v", s)
		}
		d.Run(t, "exec", "used", "--", "true")
		if err := dialPort(t, d, "kept").Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestIdlePauseRaces: a command that comes while the sandbox is being paused runs.
func TestIdlePauseRaces(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	var all sync.WaitGroup
	for i := range 4 {
		name := fmt.Sprintf("racer%d", i)
		drowsy(t, d, name)
		all.Go(func() {
			for range 12 {
				time.Sleep(time.Second + time.Duration(rand.IntN(1000))*time.Millisecond) // about when it is paused
				begin := time.Now()
				if r := d.Try("exec", "--timeout", "20s", name, "--", "echo", "won"); r.Code != 0 || r.Stdout != "won\n" {
					t.Errorf("%s: %d %q %s", name, r.Code, r.Stdout, r.Stderr)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("%s: the command took %s", name, took)
				}
			}
		})
	}
	all.Wait()
	if n := strings.Count(d.Run(t, "events", "--json", "--since", "10m", "--filter", "type=sandbox.paused").Stdout, "sandbox.paused"); n < 8 {
		t.Errorf("only %d pauses were raced", n)
	}
}
