package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/initproto"
)

func TestParseStat(t *testing.T) {
	type result struct {
		state           byte
		parent, session int
	}
	for stat, want := range map[string]result{
		"7 (sh) S 1 7 7 0 -1 4194304":           {'S', 1, 7},
		"7 (a b) Z 2 6 5 0":                     {'Z', 2, 5},
		"7 () Z 1 1 1 (x) R 3 9 9 0":            {'R', 3, 9}, // the name is ") Z 1 1 1 (x"
		"7 (new\nline\n7 (x) Z 1 1 1) S 1 2 3 ": {'S', 1, 3},
		"7 (sh) S 1 7 -1 0":                     {'S', 1, -1},
		"":                                      {},
		"7 (sh":                                 {},
		"7 (sh)":                                {},
		"7 (sh) S 1 7":                          {},
		"7 (sh) SS 1 7 7 0":                     {},
		"7 (sh) S 1 7 7":                        {}, // cut off: 77 perhaps
		"7 (sh) S 1 7 99999999999 0":            {},
		"7 (sh) S 1 7 - 0":                      {},
		"7 (sh) S 1 7 x 0":                      {},
		"7 (sh) S x 7 7 0":                      {},
	} {
		p, ok := parseStat([]byte(stat))
		if got := (result{p.state, p.parent, p.session}); got != want || ok != (want != result{}) {
			t.Errorf("parseStat(%q) = %+v, %v; want %+v", stat, p, ok, want)
		}
	}
}

// A first thread that has ended shows as a zombie: it must not hide the others.
func TestZombieWithThreads(t *testing.T) {
	for threads, ended := range map[string]bool{"0": true, "1": true, "2": false, "9": false} {
		p, ok := parseStat([]byte("7 (sh) Z 1 7 7 0 -1 4 99999999999999 0 0 0 1 2 0 0 20 0 " + threads + " 0 5"))
		if !ok || p.ended() != ended {
			t.Errorf("with %s threads: %+v, %v", threads, p, ok)
		}
	}
}

func TestFamily(t *testing.T) {
	list := []process{
		{pid: 10, parent: 1, session: 10}, // the command
		{pid: 11, parent: 10, session: 10},
		{pid: 14, parent: 11, session: 14},
		{pid: 12, parent: 14, session: 12}, // before its parent's turn in the next pass
		{pid: 13, parent: 1, session: 10},  // an orphan of the session
		{pid: 20, parent: 1, session: 20},  // another command
		{pid: 21, parent: 20, session: 20},
	}
	for _, tc := range []struct {
		session, root int
		want          []int
	}{
		{10, 10, []int{10, 11, 12, 13, 14}},
		{10, 0, []int{10, 11, 12, 13, 14}},
		{14, 0, []int{12, 14}},
		{99, 0, nil},
		{99, 20, []int{20, 21}},
	} {
		got := family(list, tc.session, tc.root)
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("family of session %d, root %d: %v, want %v", tc.session, tc.root, got, tc.want)
		}
	}
}

func TestParseNotes(t *testing.T) {
	for b, want := range map[string]struct {
		ready   bool
		refused failure
	}{
		"":                         {},
		"\x00\x00\x00\x00":         {},
		"\x00\x00\x00\x00\x00":     {ready: true},
		"\x07\x02\x00\x00\x00":     {refused: failure{initproto.StageExec, syscall.ENOENT}},
		"\x00\x00\x00\x00\x00\x08": {ready: true},
		"\x00\x00\x00\x00\x00\x08\x01\x00\x00\x00": {true, failure{initproto.StageRlimit, syscall.EPERM}},
		"\x07\x00\x00\x00\x00":                     {refused: failure{initproto.StageExec, syscall.EIO}}, // lies
		"\xff\x02\x00\x00\x00":                     {refused: failure{initproto.StageExec, syscall.EIO}},
		"\x07\xff\xff\xff\xff":                     {refused: failure{initproto.StageExec, syscall.EIO}},
	} {
		ready, refused := parseNotes([]byte(b))
		if refused == nil {
			refused = &failure{}
		}
		if ready != want.ready || *refused != want.refused {
			t.Errorf("parseNotes(%q) = %v, %+v", b, ready, *refused)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 0")
	f.Fuzz(func(t *testing.T, name string) {
		// Whatever a process calls itself, its fields are read right.
		p, ok := parseStat([]byte("7 (" + name + ") S 1 8 9 0 -1"))
		if want := (process{state: 'S', parent: 1, session: 9}); p != want || !ok {
			t.Errorf("process named %q: %+v, %v", name, p, ok)
		}
		parseStat([]byte(name)) // no panic
	})
}

func TestReadOwnStat(t *testing.T) {
	p, ok := readStat(syscall.Getpid())
	want, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	if errno != 0 || !ok || p.session != int(want) || p.parent != syscall.Getppid() || p.ended() {
		t.Errorf("readStat = %+v, %v; the session is %d", p, ok, want)
	}
	pids, err := processes()
	if err != nil || !slices.Contains(pids, syscall.Getpid()) {
		t.Errorf("processes = %v, %v", pids, err)
	}
	if p.threads < 1 {
		t.Errorf("this process has %d threads", p.threads)
	}
	if _, ok := readStat(1 << 30); ok {
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
