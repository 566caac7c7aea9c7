package uncharged

import (
	"maps"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCountLocks(t *testing.T) {
	got, all, err := countLocks(strings.NewReader(`1: POSIX  ADVISORY  WRITE 12 00:2a:3 0 0
2: POSIX  ADVISORY  READ  12 00:2a:3 4 4
2: -> POSIX  ADVISORY  WRITE 13 00:2a:3 4 4
3: FLOCK  ADVISORY  WRITE 14 00:2a:3 0 EOF
4: OFDLCK ADVISORY  WRITE -1 00:2a:3 0 0
5: POSIX  ADVISORY  WRITE -7 00:2a:3 0 0
`))
	if want := map[int]int{12: 2, 13: 1}; err != nil || !all || !maps.Equal(got, want) {
		t.Errorf("%v, %v, %v, want %v", got, all, err, want)
	}
	if _, all, err := countLocks(strings.NewReader(strings.Repeat("1: POSIX ADVISORY WRITE 12 0:0:3 0 0\n", maxLines+1))); all || err != nil {
		t.Errorf("too many lines: all %v, %v", all, err)
	}
	for _, bad := range []string{"1: POSIX\n", "1: POSIX ADVISORY WRITE x 00:2a:3 0 0\n"} {
		if _, _, err := countLocks(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// The kernel tells of a lock that this process holds.
func TestLocks(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 3 {
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := Locks()
	if err != nil || got[os.Getpid()] != 3 {
		t.Errorf("%d locks, %v", got[os.Getpid()], err)
	}
}

func TestGroupIn(t *testing.T) {
	for text, want := range map[string]string{
		"4:memory:/caisson/abc/exec-1\n0::/\n": "abc",
		"0::/caisson/abc\n":                    "abc",
		"0::/caisson\n":                        "",
		"0::/other/caisson/abc\n":              "",
		"":                                     "",
	} {
		if got := groupIn(text, "caisson"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSocketMemory(t *testing.T) {
	got, err := socketMemory("sockets: used 1\nTCP: inuse 1 orphan 0 tw 2 alloc 1 mem 64\nUDP: inuse 0 mem 3\n")
	if want := int64(67 * os.Getpagesize()); got != want || err != nil {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
	if _, err := socketMemory("UDP: inuse 0 mem 3\n"); err == nil {
		t.Error("a text without TCP was read")
	}
	if _, err := Sockets(); err != nil {
		t.Error(err)
	}
}
