package agentsandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	processv1 "github.com/caisson-run/caisson/node/agentsandbox/process/v1"
)

func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// TestFollow: a port is open as long as its sandbox is followed.
func TestFollow(t *testing.T) {
	s := New(newHost())
	defer s.Close()
	one := Sandbox{ID: "one", Runtime: "python", Address: "127.81.2.1", Dir: t.TempDir(), Admits: anybody}
	two := one
	two.ID = "two"
	const at = "127.81.2.1:8888"
	for _, c := range []struct {
		owner string
		boxes []Sandbox
		want  bool
	}{
		{"pod", []Sandbox{one}, true}, {"pod", []Sandbox{one}, true}, {"other", nil, true}, {"pod", []Sandbox{two}, true}, {"pod", nil, false}, {"pod", []Sandbox{one}, true},
	} {
		if err := s.Follow(c.owner, c.boxes); err != nil || listens(at) != c.want {
			t.Fatalf("%s follows %v: %v, listens %t", c.owner, c.boxes, err, listens(at))
		}
	}
	if err := s.Follow("other", []Sandbox{two}); err == nil || !strings.Contains(err.Error(), "127.81.2.1:8888") {
		t.Errorf("a port that is taken: %v", err)
	}
	s.Close()
	if listens(at) {
		t.Error("it listens after Close")
	}
	if _, ok, _ := s.Dial("one", 8888); ok {
		t.Error("it is dialled after Close")
	}
}

// TestAdmits: only the clients that are admitted are answered, what is open is cut, and Dial reaches
// the runtime always.
func TestAdmits(t *testing.T) {
	const at = "127.81.2.3"
	s := New(newHost())
	defer s.Close()
	box := Sandbox{ID: "box", Runtime: "sandboxd", Address: at, Dir: t.TempDir()}
	follow := func(admits func(uint16, netip.Addr) bool) {
		t.Helper()
		box.Admits = admits
		if err := s.Follow("pod", []Sandbox{box}); err != nil {
			t.Fatal(err)
		}
	}
	from := func(client string) *http.Client {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		return &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	}
	one, two := from("127.81.2.4"), from("127.81.2.5")
	health := func(c *http.Client) bool {
		res, err := c.Get("http://" + at + ":8080/v1/health")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	open := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.81.2.4")}}).Dial("tcp", at+":8080")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	only := func(client string) func(uint16, netip.Addr) bool {
		return func(port uint16, a netip.Addr) bool { return port == 8080 && a.String() == client }
	}
	follow(nil)
	if health(one) {
		t.Fatal("it answers without a word about who may connect")
	}
	follow(anybody)
	if !health(one) || !health(two) {
		t.Fatal("it does not answer anybody")
	}
	stays := open() // its request comes in parts
	if _, err := stays.Write([]byte("GET /v1/health HTTP/1.0\r\n")); err != nil {
		t.Fatal(err)
	}
	follow(only("127.81.2.4"))
	if !health(one) || health(two) {
		t.Error("it does not answer the one client alone")
	}
	if _, err := stays.Write([]byte("\r\n")); err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(stays); err != nil || !strings.Contains(string(text), "200 OK") {
		t.Errorf("the open connection got %q, %v", text, err)
	}
	cut := open()
	if _, err := cut.Write([]byte("GET /v1/health HTTP/1.0\r\n")); err != nil || !health(one) {
		t.Fatal("the connection is not open", err)
	}
	follow(only("127.81.2.5"))
	if _, err := io.ReadAll(cut); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection ended by %v", err)
	}
	if health(one) || !health(two) {
		t.Error("it does not answer the other client alone")
	}
	if c, ok, err := s.Dial("box", 8080); !ok || err != nil {
		t.Errorf("Dial: %t, %v", ok, err)
	} else {
		_ = c.Close()
	}
}

// TestDial reaches ports of runtimes without an address, and no others.
func TestDial(t *testing.T) {
	h, s, _ := serve(t, "sandboxd", "")
	if _, ok, _ := s.Dial("box", 8888); ok {
		t.Error("a port of another runtime is there")
	}
	if _, ok, _ := s.Dial("no", 8080); ok {
		t.Error("a port of another sandbox is there")
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		c, _, err := s.Dial("box", 8080)
		return c, err
	}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://pod/v1/health")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	p := connectTo(t, "pod", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		c, _, err := s.Dial("box", 9090)
		return c, err
	}))
	p.start(t.Context(), &processv1.StartRequest{Config: config("sleep", "1000")})
	s.Close() // as the program ends
	if n := h.count(); n != 0 {
		t.Errorf("%d commands are left", n)
	}
}

// TestManyRequests: the bound of one pod is told, and its answers end.
func TestManyRequests(t *testing.T) {
	v := &served{slots: make(chan struct{}, 1)}
	in, out := make(chan struct{}), make(chan struct{})
	h := v.bound(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in <- struct{}{}; <-out }))
	server := &http.Server{Handler: h}
	l, err := net.Listen("tcp", "127.81.2.2:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	url := "http://" + l.Addr().String()
	first := make(chan int)
	go func() {
		status, _, _ := request{"GET", url, "", nil}.do(t)
		first <- status
	}()
	<-in
	if status, body, _ := (request{"GET", url, "", nil}).do(t); status != 503 || !strings.Contains(body, "UNAVAILABLE") {
		t.Errorf("the second got %d %s", status, body)
	}
	close(out)
	if status := <-first; status != 200 {
		t.Errorf("the first got %d", status)
	}
}
