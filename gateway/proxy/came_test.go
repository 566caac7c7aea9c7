package proxy

import (
	"net"
	"testing"
	"time"
)

// A connection that waits to be accepted came when it was made, not when it is
// looked at.
func TestCame(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // it waits to be accepted: the times must not be of the accepting
	_ = client.Close()                 // who made it is gone
	time.Sleep(100 * time.Millisecond) // nor of the end
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	after, before := came(c.(*net.TCPConn))
	if after.After(begin) || before.Before(end) {
		t.Errorf("it came between %s and %s: between %s and %s it did not", begin, end, after, before)
	}
	if before.Sub(after) > end.Sub(begin)+2*tick+50*time.Millisecond || before.After(end.Add(100*time.Millisecond)) {
		t.Errorf("it came between %s and %s, told at %s", after, before, time.Now())
	}
	_ = c.Close()
	if after, before := came(c.(*net.TCPConn)); !after.IsZero() || !before.IsZero() {
		t.Errorf("of a closed one: %s, %s", after, before)
	}
}
