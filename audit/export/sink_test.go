package export_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/audit/export"
)

// sink is a receiver in the test.
type sink struct {
	t       *testing.T
	kind    export.Kind
	address string

	mu    sync.Mutex
	seqs  []uint64 // as they arrived; 0 is a new connection
	open  []io.Closer
	gate  chan struct{} // closed: it reads
	conns sync.WaitGroup
}

func newSink(t *testing.T, kind export.Kind) *sink {
	t.Helper()
	s := &sink{t: t, kind: kind, address: filepath.Join(t.TempDir(), "socket"), gate: make(chan struct{})}
	close(s.gate)
	if kind == export.TCP || kind == export.TLS {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.address = l.Addr().String()
		_ = l.Close() // the port is free again
	}
	t.Cleanup(s.cut)
	return s
}

func (s *sink) receiver() export.Receiver { return export.Receiver{Kind: s.kind, Address: s.address} }

func (s *sink) listen() {
	s.t.Helper()
	s.resume()
	if s.kind == export.Journald {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.address, Net: "unixgram"})
		if err != nil {
			s.t.Fatal(err)
		}
		s.keep(c)
		s.conns.Go(func() { s.readJournal(c) })
		return
	}
	network := "tcp"
	if s.kind == export.Unix {
		network = "unix"
	}
	l, err := net.Listen(network, s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.accept(l)
}

func (s *sink) accept(l net.Listener) {
	s.keep(l)
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.keep(c)
			s.conns.Go(func() { s.readSyslog(c) })
		}
	})
}

func (s *sink) keep(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, c)
}

// pause has it read nothing more, except what it is reading.
func (s *sink) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *sink) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gate:
	default:
		close(s.gate)
	}
}

func (s *sink) wait() {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	<-gate
}

// cut ends it as a kill does: what is unread is lost.
func (s *sink) cut() {
	s.mu.Lock()
	for _, c := range s.open {
		_ = c.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.resume()
	s.conns.Wait()
	_ = os.Remove(s.address) // of a datagram socket
}

var (
	header = regexp.MustCompile(`^<86>1 2026-01-02T03:04:05\.678901Z host caissond - exec\.ended - (\{"seq":(\d+),.*\})$`)
	fields = regexp.MustCompile(`^PRIORITY=6\nSYSLOG_IDENTIFIER=caissond\nCAISSON_AUDIT_SEQ=(\d+)\nCAISSON_AUDIT_TYPE=exec\.ended\nMESSAGE=(\{"seq":(\d+),.*\})\n$`)
)

func (s *sink) readSyslog(c net.Conn) {
	defer c.Close()
	s.arrived(0)
	for r := bufio.NewReaderSize(c, 1); ; {
		s.wait()
		length, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(length[:len(length)-1])
		text := make([]byte, max(0, n))
		if _, readErr := io.ReadFull(r, text); readErr != nil {
			return
		}
		m := header.FindSubmatch(text)
		if err != nil || m == nil {
			s.t.Errorf("a message of %s bytes: %.200s", length, text)
			return
		}
		s.arrivedText(string(m[2]))
	}
}

func (s *sink) readJournal(c *net.UnixConn) {
	s.arrived(0)
	buf, oob := make([]byte, 1<<20), make([]byte, 64)
	for {
		s.wait()
		n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil {
			return
		}
		text := buf[:n]
		if oobn > 0 {
			text = passed(s.t, oob[:oobn])
		}
		if n == 0 && oobn == 0 { // as the journal does
			continue
		}
		m := fields.FindSubmatch(text)
		if m == nil || !bytes.Equal(m[1], m[3]) {
			s.t.Errorf("an entry %.200q", text)
			return
		}
		s.arrivedText(string(m[1]))
	}
}

// passed returns what is in the file that came with a datagram.
func passed(t *testing.T, oob []byte) []byte {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		t.Errorf("control messages: %v %v", messages, err)
		return nil
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Errorf("descriptors: %v %v", fds, err)
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), "entry")
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 2<<20))
	if err != nil {
		t.Error(err)
	}
	return text
}

func (s *sink) arrivedText(seq string) {
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		s.t.Error(err)
	}
	s.arrived(n)
}

func (s *sink) arrived(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seqs = append(s.seqs, seq)
}

func (s *sink) has(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seqs) > 0 && s.seqs[len(s.seqs)-1] == seq
}

// count returns how many records arrived, repeated ones too.
func (s *sink) count() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range s.seqs {
		if seq != 0 {
			n++
		}
	}
	return n
}

// check asserts that the records 1 to n arrived, each connection's in order and without a
// gap. It returns how many arrived again.
func (s *sink) check(n uint64) (repeated int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	times, before := map[uint64]int{}, uint64(0)
	for _, seq := range s.seqs {
		if seq != 0 && before != 0 && seq != before+1 {
			s.t.Errorf("%d follows %d", seq, before)
		}
		if seq != 0 {
			times[seq]++
		}
		before = seq
	}
	for seq := range n {
		if times[seq+1] == 0 {
			s.t.Errorf("record %d is lost", seq+1)
			return 0
		}
		repeated += times[seq+1] - 1
	}
	return repeated
}
