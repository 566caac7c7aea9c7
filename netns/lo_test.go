package netns

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// resolve asks glibc for name by AI_ADDRCONFIG (getent(1)), in the namespace at path.
func resolve(t *testing.T, path, database, name string) string {
	t.Helper()
	need.Tools(t, "getent", "nsenter")
	out, err := exec.Command("nsenter", "--net="+path, "--", "getent", database, name).Output()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(string(out), " ")
	return address
}

// glibc finds names of one family where lo has an address of it that counts, and addresses of
// both families where neither is asked for.
func TestLoCountsForAddrConfig(t *testing.T) {
	path := create(t)
	tests := []struct{ database, name, want string }{
		{"ahostsv4", "localhost", "127.0.0.1"},
		{"ahostsv4", "127.0.0.1", "127.0.0.1"},
		{"ahostsv6", "::1", "::1"},
		{"ahosts", "::1", "::1"},
		{"ahosts", "127.0.0.1", "127.0.0.1"},
	}
	for _, tt := range tests {
		if got := resolve(t, path, tt.database, tt.name); got != tt.want {
			t.Errorf("getent %s %s: %q, want %q", tt.database, tt.name, got, tt.want)
		}
	}
	remove := func(addr *netlink.Addr) {
		t.Helper()
		if err := open(t, path).Do(func() error { return netlink.AddrDel(lo(), addr) }); err != nil {
			t.Fatal(err)
		}
	}
	remove(countedV6)
	if got := resolve(t, path, "ahosts", "::1"); got != "" {
		t.Errorf("control: ::1 is found beside IPv4 alone: %q", got)
	}
	remove(countedV4)
	if got := resolve(t, path, "ahostsv4", "127.0.0.1"); got != "" {
		t.Errorf("control: 127.0.0.1 is found though lo has no address that counts: %q", got)
	}
	if diffs, err := Check(path, nil); err != nil || len(diffs) > 0 {
		t.Errorf("a namespace of an earlier version: %v, %v", diffs, err)
	}
}

// A link with IPv4 alone has programs ask for no addresses of IPv6.
func TestBridgeCountsIPv4Alone(t *testing.T) {
	town := newTown(t)
	path, _ := town.attach(t, 0)
	for name, want := range map[string]string{"127.0.0.1": "127.0.0.1", "::1": ""} {
		if got := resolve(t, path, "ahosts", name); got != want {
			t.Errorf("getent ahosts %s: %q, want %q", name, got, want)
		}
	}
}

// What counts for glibc is to the rules what ::1 is: own listeners answer, and a connection to
// nobody fails at once.
func TestTheCountedIPv6IsALoopback(t *testing.T) {
	for _, redirected := range []bool{false, true} {
		path := create(t)
		if redirected {
			mustInstall(t, path, pool)
		}
		for _, addr := range []string{"::1", "fe80::2%lo"} {
			var reached, nobody error
			var took time.Duration
			if err := open(t, path).Do(func() error {
				l, err := net.Listen("tcp6", "[::]:7000")
				if err != nil {
					return err
				}
				defer l.Close()
				start := time.Now()
				for { // the kernel makes the route of a new address behind
					if reached = rawDial("tcp6", "["+addr+"]:7000"); !errors.Is(reached, unix.ENETUNREACH) || time.Since(start) > 10*time.Second {
						break
					}
					time.Sleep(time.Millisecond)
				}
				start = time.Now()
				nobody = rawDial("tcp6", "["+addr+"]:7001")
				took = time.Since(start)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if reached != nil || !errors.Is(nobody, unix.ECONNREFUSED) || took > 10*time.Second {
				t.Errorf("with rules: %v: %s: a listener: %v; nobody: %v after %s", redirected, addr, reached, nobody, took)
			}
		}
	}
}
