package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestParseStat(t *testing.T) {
	type result struct {
		state   byte
		session int
		ok      bool
	}
	for stat, want := range map[string]result{
		"7 (sh) S 1 7 7 0 -1 4194304":           {'S', 7, true},
		"7 (a b) Z 1 6 5 0":                     {'Z', 5, true},
		"7 () Z 1 1 1 (x) R 1 9 9 0":            {'R', 9, true}, // the name is ") Z 1 1 1 (x"
		"7 (new\nline\n7 (x) Z 1 1 1) S 1 2 3 ": {'S', 3, true},
		"7 (sh) S 1 7 -1 0":                     {'S', -1, true},
		"":                                      {},
		"7 (sh":                                 {},
		"7 (sh)":                                {},
		"7 (sh) S 1 7":                          {},
		"7 (sh) SS 1 7 7 0":                     {},
		"7 (sh) S 1 7 7":                        {}, // cut off: 77 perhaps
		"7 (sh) S 1 7 99999999999 0":            {},
		"7 (sh) S 1 7 - 0":                      {},
	} {
		state, session, ok := parseStat([]byte(stat))
		if got := (result{state, session, ok}); got != want && (ok || want.ok) {
			t.Errorf("parseStat(%q) = %+v, want %+v", stat, got, want)
		}
	}
	if _, _, ok := parseStat([]byte("7 (sh) S 1 7 x 0")); ok {
		t.Error("parseStat accepts a session that is no number")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 0")
	f.Fuzz(func(t *testing.T, name string) {
		// Whatever a process calls itself, its fields are read right.
		if state, session, ok := parseStat([]byte("7 (" + name + ") S 1 8 9 0 -1")); state != 'S' || session != 9 || !ok {
			t.Errorf("process named %q: %c, %d, %v", name, state, session, ok)
		}
		parseStat([]byte(name)) // no panic
	})
}

func TestReadOwnStat(t *testing.T) {
	state, session, ok := readStat(syscall.Getpid())
	want, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	if errno != 0 || !ok || session != int(want) || state == 'Z' {
		t.Errorf("readStat = %c, %d, %v; the session is %d", state, session, ok, want)
	}
	pids, err := processes()
	if err != nil || !slices.Contains(pids, syscall.Getpid()) {
		t.Errorf("processes = %v, %v", pids, err)
	}
	if _, _, ok := readStat(1 << 30); ok {
		t.Error("a process that cannot be has a state")
	}
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"yes": 0o755, "no": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := []string{"PATH=/absent:" + dir}
	for _, tc := range []struct {
		name string
		env  []string
		want string
		err  error
	}{
		{"yes", path, dir + "/yes", nil},
		{"no", path, "", syscall.EACCES},
		{"sub", path, "", syscall.EACCES},
		{"absent", path, "", syscall.ENOENT},
		{"", path, "", syscall.ENOENT},
		{"a/b", path, "a/b", nil}, // the kernel decides
		{"yes", []string{"PATH="}, "", syscall.ENOENT},
		{"caisson-no-such", []string{"XPATH=" + dir, "PATH"}, "", syscall.ENOENT},
		{"sh", nil, "/bin/sh", nil},
	} {
		got, err := lookup(tc.name, tc.env)
		if tc.name == "sh" {
			got = "/bin/" + filepath.Base(got) // wherever this host has it
		}
		if got != tc.want || err != tc.err {
			t.Errorf("lookup(%q, %q) = %q, %v; want %q, %v", tc.name, tc.env, got, err, tc.want, tc.err)
		}
	}
}

func TestSameGroups(t *testing.T) {
	for _, tc := range []struct {
		have []int
		want []uint32
		same bool
	}{
		{nil, nil, true},
		{[]int{1, 2}, []uint32{2, 1, 2}, true},
		{[]int{1}, nil, false},
		{nil, []uint32{0}, false},
		{[]int{1, 2}, []uint32{1}, false},
	} {
		if got := sameGroups(tc.have, tc.want); got != tc.same {
			t.Errorf("sameGroups(%v, %v) = %v", tc.have, tc.want, got)
		}
	}
}

func TestForkStageKeepsResourcesApart(t *testing.T) {
	for err, want := range map[syscall.Errno][2]string{
		syscall.EAGAIN: {"fork", "fork"},
		syscall.EMFILE: {"fork", "fork"},
		syscall.EPERM:  {"exec", "user"},
		syscall.EINVAL: {"exec", "user"},
		syscall.ENOENT: {"exec", "exec"},
	} {
		got := [2]string{forkStage(err, nil).String(), forkStage(err, &syscall.Credential{}).String()}
		if got != want {
			t.Errorf("forkStage(%v) = %q, want %q", err, got, want)
		}
	}
}
