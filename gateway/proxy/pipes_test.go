package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connected are the two ends of a connection.
func connected(t *testing.T) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close(); _ = other.Close() })
	return one.(*net.TCPConn), other.(*net.TCPConn)
}

// A byte of urgent data, at which splice(2) stops, is passed over: what follows it
// arrives, in few calls, and no pipe is held.
func TestUrgentDataIsPassedOver(t *testing.T) {
	from, src := connected(t)
	dst, to := connected(t)
	const size = 100 << 10
	err := control(from, func(fd int) error { return unix.Sendto(fd, []byte{'!'}, unix.MSG_OOB, nil) })
	if _, sent := from.Write(make([]byte, size)); err != nil || sent != nil || from.CloseWrite() != nil {
		t.Fatal(err, sent)
	}
	time.Sleep(50 * time.Millisecond) // all of it has come
	end := time.Now().Add(20 * time.Second)
	if err := src.SetReadDeadline(end); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, to) }()
	r, moved := newRoom(), int64(0)
	for time.Now().Before(end) {
		n, err := r.moveMuch(dst, src)
		moved += n
		if errors.Is(err, io.EOF) {
			if moved != size {
				t.Errorf("%d bytes arrived, want %d", moved, size)
			}
			return
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", moved, err)
		}
	}
	t.Errorf("no end after %d bytes", moved)
}
