package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// syslogReceiver is a receiver of syslog on a stream socket.
type syslogReceiver struct {
	listener net.Listener
	mu       sync.Mutex
	seqs     []uint64 // as they arrived; 0 is a new connection
	types    map[string]int
	conns    []net.Conn
}

func receiveSyslog(t *testing.T, path string) *syslogReceiver {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &syslogReceiver{listener: l, types: map[string]int{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conns, c.seqs = append(c.conns, conn), append(c.seqs, 0)
			c.mu.Unlock()
			go c.read(t, conn)
		}
	}()
	return c
}

func (c *syslogReceiver) read(t *testing.T, conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		length, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(length))
		text := make([]byte, max(0, n))
		if _, readErr := io.ReadFull(r, text); readErr != nil {
			return
		}
		var priority, version, seq uint64
		var stamp, host, app, process, id string
		if _, scanErr := fmt.Sscanf(string(text), "<%d>%d %s %s %s %s %s - {\"seq\":%d,", &priority, &version, &stamp, &host, &app, &process, &id, &seq); err != nil || scanErr != nil {
			t.Errorf("%v %v: %.200s", err, scanErr, text)
			return
		}
		c.mu.Lock()
		c.seqs = append(c.seqs, seq)
		c.types[id]++
		c.mu.Unlock()
	}
}

// cut ends the receiver.
func (c *syslogReceiver) cut() {
	_ = c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *syslogReceiver) all() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]uint64(nil), c.seqs...)
}

// A receiver that comes late and is cut, and a daemon that is killed, lose no record of
// the audit log. Who is away is told, and no command waits for it.
func TestAuditExport(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "syslog")
	d := harness.StartWith(t, fmt.Sprintf("audit: {export: [{to: unix, address: %s}]}\n", socket))
	box(t, d, "worker")
	work := func() {
		for range 10 {
			d.Run(t, "exec", "worker", "--", "true")
		}
	}
	work()
	if out := d.Try("doctor", "-o", "json").Stdout; !strings.Contains(out, "SBX-903") || !strings.Contains(out, socket) {
		t.Errorf("doctor does not tell who is away: %s", out)
	}
	var got []uint64
	types := map[string]int{}
	phase := func(act func()) {
		c := receiveSyslog(t, socket)
		act()
		newest := newestRecord(t, d)
		// Two tries are up to 30 s apart.
		for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			seqs := c.all()
			if len(seqs) > 0 && seqs[len(seqs)-1] >= newest {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("record %d is not sent: %v", newest, seqs)
			}
		}
		c.cut()
		got = append(got, c.all()...)
		c.mu.Lock()
		defer c.mu.Unlock()
		for id, n := range c.types {
			types[id] += n
		}
	}
	phase(func() {
		work()
		// Likewise, and a receiver is back after two seconds.
		for end := time.Now().Add(90 * time.Second); !strings.Contains(d.Log(), "the receiver takes records again"); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the log does not tell who came back")
			}
		}
	})
	if n := strings.Count(d.Log(), "the receiver is away"); n != 1 {
		t.Errorf("the log tells %d times who is away", n)
	}
	settled := newestRecord(t, d)
	work() // the receiver is away
	phase(func() {
		work()
		d.Kill(t)
		d.Launch(t)
		work()
	})
	phase(func() {})
	assertComplete(t, got)
	if types["exec.ended"] < 50 || types["daemon.started"] < 2 || types["sandbox.created"] == 0 {
		t.Errorf("types %v", types)
	}
	if again := repeated(got, settled); again > int(settled)/2 {
		t.Errorf("%d of %d records arrived again, although their receiver had read them for seconds", again, settled)
	}
	d.Run(t, "audit", "verify")
}

func newestRecord(t *testing.T, d *harness.Daemon) (seq uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(d.Run(t, "audit", "tail", "-n", "1", "--json").Stdout, "{\"seq\":%d,", &seq); err != nil {
		t.Fatal(err)
	}
	return seq
}

// assertComplete: each record from the first on arrived, those of a connection in order.
func assertComplete(t *testing.T, seqs []uint64) {
	t.Helper()
	arrived, before, newest := map[uint64]bool{}, uint64(0), uint64(0)
	for _, seq := range seqs {
		if seq != 0 && before != 0 && seq != before+1 {
			t.Errorf("%d follows %d", seq, before)
		}
		arrived[seq], before, newest = true, seq, max(newest, seq)
	}
	for seq := uint64(1); seq <= newest; seq++ {
		if !arrived[seq] {
			t.Errorf("record %d is lost", seq)
		}
	}
	t.Logf("%d of %d records arrived again", repeated(seqs, newest), newest)
}

// repeated counts the records up to newest that arrived more than once.
func repeated(seqs []uint64, newest uint64) (n int) {
	times := map[uint64]int{}
	for _, seq := range seqs {
		if times[seq]++; seq != 0 && seq <= newest && times[seq] == 2 {
			n++
		}
	}
	return n
}

// Receivers that may lose records, or whose certificates cannot be read, are refused.
func TestAuditExportRefused(t *testing.T) {
	t.Parallel()
	d := harness.New(t)
	settings := filepath.Join(d.Root, "config.yaml")
	for text, want := range map[string]string{
		"{to: udp, address: '127.0.0.1:514'}":                           "audit.export[0].to: udp loses records",
		"{to: tls, address: '127.0.0.1:6514', ca: /nonexistent/ca.pem}": "audit.export[0].ca:",
		"{to: tls, address: '127.0.0.1:6514', ca: " + settings + "}":    "holds no certificate",
	} {
		if err := os.WriteFile(settings, []byte("ids: {blocks: 64}\naudit: {export: ["+text+"]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(harness.Bin(t, "caissond"), "--config", settings, "--root", d.Root, "--state", d.State).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "SBX-105") {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	}
}
