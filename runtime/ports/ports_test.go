package ports

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"8080:3000":           "127.0.0.1:8080 -> 3000",
		"0:3000":              "127.0.0.1:0 -> 3000",
		"0.0.0.0:80:8080":     "0.0.0.0:80 -> 8080",
		"127.0.0.2:8080:3000": "127.0.0.2:8080 -> 3000",
		"[::1]:8080:3000":     "[::1]:8080 -> 3000",
		"8080:80":             "127.0.0.1:8080 -> 80",
		"65535:65535":         "127.0.0.1:65535 -> 65535",

		"0.0.0.0:80:8080@10.0.0.0/8+192.0.2.7": "0.0.0.0:80 -> 8080 for 10.0.0.0/8+192.0.2.7/32",
		"[::]:80:8080@fd00::/8":                "[::]:80 -> 8080 for fd00::/8",
	} {
		all, err := ParseAll([]string{text})
		if err != nil || len(all) != 1 || all[0].String() != want {
			t.Errorf("%q: %v, %v, want %s", text, all, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ text, word string }{
		{"", "no colon"},
		{"8080", "no colon"},
		{":8080", `"" is no port`},
		{"8080:", `"" is no port`},
		{"8080:53", "below 54"},
		{"8080:53", "below 54"},
		{"8080:1", "below 54"},
		{"8080:0", "below 54"},
		{"70000:8080", `"70000" is no port`},
		{"8080:70000", `"70000" is no port`},
		{"-1:8080", `"-1" is no port`},
		{"+1:8080", `"+1" is no port`},
		{"08080:8080", `"08080" is no port`},
		{"8080:8080/udp", "is no port"},
		{"localhost:8080:8080", "is no address"},
		{":8080:8080", `"" is no address`},
		{"::1:8080:8080", "is no port"},
		{"[fe80::1%lo]:8080:8080", "nothing can listen"},
		{"[::ffff:127.0.0.1]:8080:8080", "nothing can listen"},
		{"224.0.0.1:8080:8080", "nothing can listen"},
		{"255.255.255.255:8080:8080", "nothing can listen"},
		{"8080:8080@", `"" is no address and no CIDR`},
		{"8080:8080@10.0.0.0/8+", `"" is no address and no CIDR`},
		{"8080:8080@10.0.0.1/8", "write 10.0.0.0/8"},
		{"8080:8080@fd00::/8", "of two families"},
		{"[::]:8080:8080@10.0.0.1", "of two families"},
		{"8080:8080@::ffff:10.0.0.1", "is no address"},
		{"8080:8080@10.0.0.1" + strings.Repeat("+10.0.0.1", 256), "257 clients are more than 256"},
	} {
		_, err := ParseAll([]string{tt.text})
		if sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), tt.word) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.word)
		}
	}
	for _, twice := range [][]string{{"8080:3000", "8080:3001"}, {"8080:3000", "0.0.0.0:8080:3000"}, {"[::]:8080:3000", "[::1]:8080:3001"}} {
		if _, err := ParseAll(twice); sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), "published already") {
			t.Errorf("%q: %v", twice, err)
		}
	}
	for _, both := range [][]string{{"8080:3000", "127.0.0.2:8080:3000"}, {"0:3000", "0:3000"}, {"0.0.0.0:8080:3000", "[::]:8080:3000"}} {
		if _, err := ParseAll(both); err != nil {
			t.Errorf("%q: %v", both, err)
		}
	}
	if _, err := ParseAll(make([]string, Max+1)); err == nil || !strings.Contains(err.Error(), "more than 16") {
		t.Errorf("too many: %v", err)
	}
}

// TestPrefixes: a record that was changed lets nobody in.
func TestPrefixes(t *testing.T) {
	all := port(t, "8080:8080@127.0.0.0/8+192.0.2.7")
	if p := all[0].Prefixes(); len(p) != 2 || !p[0].Contains(netip.MustParseAddr("127.1.2.3")) || p[1].Contains(netip.MustParseAddr("192.0.2.8")) {
		t.Errorf("%v", p)
	}
	if p := (Port{Clients: "all"}).Prefixes(); len(p) != 1 || p[0].Contains(netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v", p)
	}
	if p := (Port{}).Prefixes(); p != nil {
		t.Errorf("%v", p)
	}
}

func port(t *testing.T, text string) []Port {
	t.Helper()
	all, err := ParseAll([]string{text})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTable(t *testing.T) {
	var table Table
	opened, err := table.Open("a", port(t, "0:3000"))
	if err != nil || len(opened) != 1 || opened[0].Host == 0 || opened[0].Inside != 3000 {
		t.Fatalf("%v, %v", opened, err)
	}
	t.Cleanup(func() { _ = table.Close("a") })
	c, err := net.Dial("tcp4", opened[0].listener())
	if err != nil {
		t.Fatalf("nothing listens: %v", err)
	}
	_ = c.Close()
	if files := table.Files("a"); len(files) != 1 || table.Ports("a")[0] != opened[0] {
		t.Errorf("%v, %v", files, table.Ports("a"))
	}
	if _, err := table.Open("a", port(t, "0:3001")); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("a second time: %v", err)
	}
	var taken *Taken
	if _, err := table.Open("b", opened); sbxerr.Of(err) != sbxerr.PortTaken || !errors.As(err, &taken) || taken.Holder != "a" {
		t.Errorf("taken by a sandbox: %v", err)
	}
	if err := errors.Join(table.Close("a"), table.Close("a")); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp4", opened[0].listener()); err == nil {
		t.Error("it listens when it is closed")
	}
	if again, err := table.Open("b", opened); err != nil || again[0] != opened[0] {
		t.Errorf("the same again: %v, %v", again, err)
	}
	if err := table.Close("b"); err != nil {
		t.Error(err)
	}
}

// After a restart what can be opened is; what is taken is waited for, but not for
// ever.
func TestReopen(t *testing.T) {
	var before, after Table
	had, err := before.Open("a", append(port(t, "0:3000"), port(t, "0:3001")...))
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, number, _ := strings.Cut(other.Addr().String(), ":")
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = before.Close("a")
	}()
	again, err := after.Reopen("a", append(port(t, number+":3002"), had...), 500*time.Millisecond)
	if sbxerr.Of(err) != sbxerr.PortTaken || !slices.Equal(again, had) || !slices.Equal(after.Ports("a"), had) {
		t.Errorf("%v of %v, %v", again, had, err)
	}
	if err := after.Close("a"); err != nil {
		t.Error(err)
	}
}

// All ports of a request are opened, or none.
func TestTableOpensAllOrNone(t *testing.T) {
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var table Table
	free := port(t, "0:3000")
	opened, err := table.Open("probe", free)
	if err != nil || table.Close("probe") != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(other.Addr().String(), ":")
	var taken *Taken
	_, err = table.Open("a", append(opened, port(t, number+":3000")...))
	if sbxerr.Of(err) != sbxerr.PortTaken || !errors.As(err, &taken) || taken.Holder != "" {
		t.Fatalf("taken by a stranger: %v", err)
	}
	if len(table.Ports("a")) > 0 {
		t.Error("one is open")
	}
	if _, err := net.Dial("tcp4", opened[0].listener()); err == nil {
		t.Error("one listens")
	}
	if _, err := table.Open("a", port(t, "192.0.2.1:0:3000")); sbxerr.Of(err) != sbxerr.Config {
		t.Errorf("an address that is not the host's: %v", err)
	}
}
