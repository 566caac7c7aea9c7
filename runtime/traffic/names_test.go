package traffic

import (
	"bytes"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

func TestNames(t *testing.T) {
	l, _ := newLog(t)
	addr := netip.MustParseAddr("198.18.0.7")
	l.Named("a", "x.example", addr)
	l.Named("a", "y.example", addr.Next())
	wantNames(t, l, "x.example=198.18.0.7", "y.example=198.18.0.8")
}

// wantNames are served by a gateway too.
func wantNames(t *testing.T, l *Log, want ...string) {
	t.Helper()
	names, err := l.Names("a")
	if err != nil {
		t.Fatal(err)
	}
	expected := map[policy.Name]netip.Addr{}
	for _, w := range want {
		name, addr, _ := strings.Cut(w, "=")
		expected[policy.Name(name)] = netip.MustParseAddr(addr)
	}
	if !maps.Equal(names, expected) {
		t.Errorf("names %v, want %v", names, want)
	}
	if _, err := lookup.NewPool(100, names); err != nil {
		t.Error(err)
	}
}

// What a full disk or a killed daemon left leaves the rest there, and no address that
// may have been given is given to another name.
func TestBadNames(t *testing.T) {
	for text, want := range map[string][]string{
		"198.18.0.7 x.example\n198.18.0.8 not a name\n":   {"x.example=198.18.0.7", "lost-198-18-0-8.invalid=198.18.0.8"},
		"198.18.0.7 x.exa198.18.0.8 y.example\n":          {"lost-198-18-0-7.invalid=198.18.0.7"},
		"198.18.0.7\n\nhello\n198.18.0.9 x.example\n":     {"lost-198-18-0-7.invalid=198.18.0.7", "x.example=198.18.0.9"},
		"10.0.0.1 x.example\n198.18.0.7 y.example\n":      {"y.example=198.18.0.7"},
		"198.18.0.7 x.example\n198.18.0.7 y.example\n":    {"lost-198-18-0-7.invalid=198.18.0.7"},
		"198.18.0.7 x.example\n198.18.0.8 x.example\n":    {"lost-198-18-0-7.invalid=198.18.0.7", "x.example=198.18.0.8"},
		"198.18.0.7 x.example\n198.18.0.7 x.example\n198": {"x.example=198.18.0.7"},
	} {
		l, dir := newLog(t)
		var said bytes.Buffer
		l.log = slog.New(slog.NewTextHandler(&said, nil))
		if err := os.WriteFile(filepath.Join(dir, "a", "names"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantNames(t, l, want...)
		warned := strings.Contains(said.String(), "leave out")
		if none := strings.Count(text, "x.example\n") == 2; warned == none {
			t.Errorf("%q: said %q", text, said.String())
		}
	}
}

// A torn line is not glued to the next one, and is none.
func TestTornName(t *testing.T) {
	l, dir := newLog(t)
	if err := os.WriteFile(filepath.Join(dir, "a", "names"), []byte("198.18.0.6 w.example\n198.18.0.7 x.exa"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Named("a", "y.example", netip.MustParseAddr("198.18.0.8"))
	wantNames(t, l, "w.example=198.18.0.6", "lost-198-18-0-7.invalid=198.18.0.7", "y.example=198.18.0.8")
}

// What a full disk does not take leaves nothing behind, be it a name or an entry.
func TestFullDisk(t *testing.T) {
	l, dir := newLog(t)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGXFSZ)
	defer signal.Stop(signals)
	for name, keep := range map[string]func(string){
		"names":   func(name string) { l.Named("a", policy.Name(name), netip.MustParseAddr("198.18.0.7")) },
		"carried": func(name string) { l.Attempted(tried(name, 1)) },
	} {
		path := filepath.Join(dir, "a", name)
		for _, room := range []int{0, 5} { // before there is a file, and after
			before, _ := os.ReadFile(path)
			within(t, uint64(len(before)+room), func() { keep("full.example") })
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s: %q, %v, was %q", name, after, err, before)
			}
			keep("x.example")
		}
		if whole, err := os.ReadFile(path); err != nil || bytes.Count(whole, []byte("\n")) != 2 || bytes.Contains(whole, []byte("full")) {
			t.Errorf("%s: %q, %v", name, whole, err)
		}
	}
}

// within has no file of this process grow beyond size while fn runs.
func within(t *testing.T, size uint64, fn func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}
