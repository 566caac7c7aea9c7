package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// sshd begins by itself, as servers of many protocols do, and then echoes.
func sshd(c *net.TCPConn) {
	_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
	echo(c)
}

// What a rule calls opaque is not read, on both ports, and all else still is.
func TestOpaqueIsNotRead(t *testing.T) {
	b := start(t, allow("a.test,opaque", "b.test"), sshd, nil)
	for _, port := range []uint16{80, 443} {
		got, err := talk(b.dial("a.test", port), "SSH-2.0-mine\r\n")
		if got != "SSH-2.0-test\r\nSSH-2.0-mine\r\n" || err != nil {
			t.Errorf("port %d: %q, %v", port, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Allowed || a.Rule != "allow a.test:80+443,opaque" {
			t.Errorf("port %d: %+v", port, a)
		}
	}
	if got, err := talk(b.dial("b.test", 443), "SSH-2.0-mine\r\n"); strings.Contains(got, "SSH") || err != nil {
		t.Errorf("control, without the option: %q, %v", got, err)
	}
	a := b.record()
	if a.Verdict != attempt.Refused || a.Code != sbxerr.EgressMismatch || !attempt.NamesNobody(a.Reason) {
		t.Errorf("control: %+v", a)
	}
	err := tls.Client(b.dial("b.test", 443), &tls.Config{ServerName: "c.test"}).Handshake()
	if a := b.record(); err == nil || attempt.NamesNobody(a.Reason) {
		t.Errorf("one that names another host: %v, %+v", err, a)
	}
}

// A connection that was not read ends when the rule says that no more, and goes on where
// another one still does.
func TestOpaqueChanges(t *testing.T) {
	b := start(t, allow("a.test:443,opaque"), echo, nil)
	c := b.dial("a.test", 443)
	ping := func() error {
		if _, err := io.WriteString(c, "x"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	b.SetPolicy(compile(t, allow("a.test", "a.test:443+80,opaque")))
	if err := ping(); err != nil {
		t.Errorf("control: %v", err)
	}
	b.SetPolicy(compile(t, allow("a.test")))
	if err := ping(); err == nil {
		t.Error("it goes on")
	}
	if a := b.record(); a.Verdict != attempt.Cut || a.Code != sbxerr.EgressDenied || !strings.Contains(a.Reason, "names its host") {
		t.Errorf("%+v", a)
	}
}
