package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// manager is systemd's end of the socket.
type manager struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

func listenAsSystemd(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return manager{t, path, conn}
}

func (m manager) next() string {
	m.t.Helper()
	buf := make([]byte, 128)
	if err := m.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buf)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

func TestTakeSystemd(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		socket, usec, pid string
		want              systemd
	}{
		{"", "", "", systemd{}},
		{"/run/n", "", "", systemd{socket: "/run/n"}},
		{"@n", "2000000", own, systemd{"@n", 2 * time.Second}},
		{"/run/n", "2000000", "", systemd{"/run/n", 2 * time.Second}},
		{"/run/n", "2000000", "1", systemd{socket: "/run/n"}}, // another process is watched
		{"/run/n", "soon", own, systemd{socket: "/run/n"}},
		{"/run/n", "-1", own, systemd{socket: "/run/n"}},
	} {
		t.Setenv("NOTIFY_SOCKET", tt.socket)
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := takeSystemd(); got != tt.want {
			t.Errorf("%+v: got %+v", tt, got)
		}
		for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
			if value, set := os.LookupEnv(name); set {
				t.Errorf("%s=%s is left for programs that the daemon starts", name, value)
			}
		}
	}
}

// A daemon that hangs gives no sign of life.
func TestWatchdog(t *testing.T) {
	m := listenAsSystemd(t)
	s := systemd{socket: m.path, watchdog: 2 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	called, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.watch(ctx, func() { called <- struct{}{}; <-goOn })
	}()
	<-called
	if err := s.tell("hangs"); err != nil {
		t.Fatal(err)
	}
	if got := m.next(); got != "hangs" {
		t.Fatalf("%s, from a daemon that hangs", got)
	}
	goOn <- struct{}{}
	if got := m.next(); got != stateAlive {
		t.Fatalf("%s, want %s", got, stateAlive)
	}
	<-called
	cancel()
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestTellNobody(t *testing.T) {
	if err := (systemd{}).tell(stateReady); err != nil {
		t.Error(err)
	}
	if err := (systemd{}).watch(t.Context(), nil); err != nil {
		t.Error(err)
	}
	gone := systemd{socket: filepath.Join(t.TempDir(), "none"), watchdog: time.Microsecond}
	if gone.tell(stateReady) == nil || gone.watch(t.Context(), func() {}) == nil {
		t.Error("a socket that is not there took a message")
	}
}
