package integration

import (
	"archive/tar"
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// Every bad exec has its code and its exact message, and leaves nothing.
func TestBadExec(t *testing.T) {
	id, dead := box(t, daemon, "bad"), box(t, daemon, "dead")
	daemon.Run(t, "stop", "dead")
	box(t, daemon, "frozen")
	daemon.Run(t, "pause", "frozen")
	processes := func() int {
		return strings.Count(daemon.Run(t, "exec", "bad", "--", "ps", "-o", "args").Stdout, "\n")
	}
	alone := processes() // PID 1 and ps
	files, open := kept(t, daemon, id), daemon.OpenFiles(t)
	long := strings.Repeat("x", 120<<10)
	many := []string{"bad", "--", "echo", long, long, long, long, long}
	env := []string{"-e", "A=" + long, "-e", "B=" + long, "-e", "C=" + long, "-e", "D=" + long, "-e", "E=" + long, "bad", "--", "true"}
	for _, tt := range []struct {
		name, code, message string
		args                []string
	}{
		{"dead", "SBX-108", "sandbox dead is exited", []string{"dead", "--", "true"}},
		{"paused", "SBX-114", "sandbox frozen is paused", []string{"frozen", "--", "true"}},
		{"absent", "SBX-107", `no sandbox "nowhere"`, []string{"nowhere", "--", "true"}},
		{"oversized argv", "SBX-101", "arguments and environment take 6", many},
		{"oversized env", "SBX-101", "arguments and environment take 6", env},
		{"absent cwd", "SBX-101", `enter directory "/no/such": no such file or directory`, []string{"-w", "/no/such", "bad", "--", "true"}},
		{"a file as cwd", "SBX-101", `enter directory "/etc/passwd": not a directory`, []string{"-w", "/etc/passwd", "bad", "--", "true"}},
		{"relative cwd", "SBX-101", `working directory "tmp" is not a clean absolute path`, []string{"-w", "tmp", "bad", "--", "true"}},
		{"cwd in /proc", "SBX-101", `working directory "/proc/self" lies in /proc`, []string{"-w", "/proc/self", "bad", "--", "true"}},
		{"absent user", "SBX-205", `resolve user "nosuch": the image's passwd has no user "nosuch"`, []string{"-u", "nosuch", "bad", "--", "true"}},
		{"another user", "SBX-101", `user "2000:3000" is 2000:3000, and every command of the sandbox runs as 1000:1000`, []string{"-u", "2000:3000", "bad", "--", "true"}},
		{"another group", "SBX-101", `user "1000:3000" is 1000:3000, and every command of the sandbox runs as 1000:1000`, []string{"-u", "1000:3000", "bad", "--", "true"}},
		{"another user by name", "SBX-101", `user "nobody" is 65534:65534, and every command of the sandbox runs as 1000:1000`, []string{"-u", "nobody", "bad", "--", "true"}},
		{"root", "SBX-205", `user "root" is root inside the sandbox`, []string{"-u", "root", "bad", "--", "true"}},
		{"a user above all", "SBX-205", `resolve user "65536"`, []string{"-u", "65536", "bad", "--", "true"}},
		{"absent command", "SBX-608", `look up "no-such": not found in PATH`, []string{"bad", "--", "no-such"}},
		{"unknown rlimit", "SBX-101", `no resource limit "RLIMIT_NOFILES"; there are RLIMIT_AS, `, []string{"--ulimit", "nofiles=1", "bad", "--", "true"}},
		{"rlimit above the sandbox's", "SBX-101", "RLIMIT_NOFILE: 64:99999 was asked for, and the sandbox's hard limit is 4096", []string{"--ulimit", "nofile=64:99999", "bad", "--", "true"}},
		{"memory above the sandbox's", "SBX-102", "", []string{"-m", "64G", "bad", "--", "true"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := daemon.Refused(t, tt.code, append([]string{"exec", "--json"}, tt.args...)...)
			if !strings.HasPrefix(f.Error.Message, tt.message) {
				t.Errorf("message %q, want %q", f.Error.Message, tt.message)
			}
		})
	}
	for ref, want := range map[string]int{"bad": 1, "dead": 0, "frozen": 0} { // the one that counted processes
		if jobs := ps(t, daemon, ref); len(jobs) != want {
			t.Errorf("commands of %s that never began: %+v", ref, jobs)
		}
	}
	if now := append(kept(t, daemon, id), kept(t, daemon, dead)...); !slices.Equal(now, files) {
		t.Errorf("kept output %q, was %q", now, files)
	}
	await(t, "the end of the daemon's open files", func() bool { return daemon.OpenFiles(t) <= open })
	if n := processes(); n != alone {
		t.Errorf("%d lines of processes, were %d", n, alone)
	}
}

// A command that cannot be executed is refused with the same code each time, also where it
// is placed into a cgroup of its own before that is known.
//
//caisson:kernel
func TestAbsentCommandWithLimits(t *testing.T) {
	box(t, daemon, "placed")
	for name, want := range map[string]int{"no-such": 127, "/no/such": 127, "/etc/passwd": 126} {
		for i := range 20 {
			if r := daemon.Try("exec", "-m", "32M", "placed", "--", name); r.Code != want {
				t.Fatalf("%s ended with %d after %d tries, want %d: %s", name, r.Code, i, want, r.Stderr)
			}
		}
	}
	if jobs := ps(t, daemon, "placed"); len(jobs) != 0 {
		t.Errorf("commands that never began: %+v", jobs)
	}
}

// What the refusal of another user tells to do is what works.
func TestSandboxOfAnotherUser(t *testing.T) {
	box(t, daemon, "theirs", "--user", "2000:3000")
	for _, args := range [][]string{{"theirs"}, {"-u", "2000:3000", "theirs"}} {
		if out := daemon.Run(t, append(append([]string{"exec"}, args...), "--", "sh", "-c", "id -u; id -g")...).Stdout; out != "2000\n3000\n" {
			t.Errorf("%v: it ran as %q", args, out)
		}
	}
	daemon.Refused(t, "SBX-101", "exec", "--json", "-u", "1000:1000", "theirs", "--", "true")
}

// A sandbox that is to stop takes no command from then on, while those that it
// runs have their grace.
func TestExecInAStoppingSandbox(t *testing.T) {
	id := box(t, daemon, "slow-end")
	job := start(t, daemon, "slow-end", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
	await(t, "the command", func() bool { return ps(t, daemon, "slow-end")[0].StdoutBytes > 0 })
	before := kept(t, daemon, id)
	stop := beside(t, daemon, "stop", "--grace", "10m", "slow-end")
	await(t, "its stop", func() bool { return list(t, daemon)[0].State == "stopping" })
	for _, args := range [][]string{{"exec", "--json"}, {"exec", "--json", "-d"}, {"pause", "--json"}} {
		words := append(args, "slow-end")
		if args[0] == "exec" {
			words = append(words, "--", "true")
		}
		if f := daemon.Refused(t, "SBX-108", words...); f.Error.Message != "sandbox slow-end is stopping" {
			t.Errorf("%q: message %q", words, f.Error.Message)
		}
	}
	if jobs := ps(t, daemon, "slow-end"); len(jobs) != 1 || jobs[0].State != "running" {
		t.Errorf("commands %+v", jobs)
	}
	if now := kept(t, daemon, id); !slices.Equal(now, before) {
		t.Errorf("kept output %q, was %q", now, before)
	}
	daemon.Run(t, "kill", "-s", "KILL", "slow-end", job)
	if code := stop.end(t); code != 0 {
		t.Errorf("stop ended with %d: %s", code, stop.stderr())
	}
}

// kept names the files in which the output of a sandbox's commands is.
func kept(t *testing.T, d *harness.Daemon, id string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Root, "output", id))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func archiveOf(t *testing.T, headers ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Of an archive that may not go in, nothing does.
func TestBadArchive(t *testing.T) {
	box(t, daemon, "files")
	good := tar.Header{Name: "good", Typeflag: tar.TypeReg, Mode: 0o644}
	for _, tt := range []struct{ name, code, archive, message string }{
		{"..", "SBX-218", archiveOf(t, good, tar.Header{Name: "../out", Typeflag: tar.TypeReg}), `the name "../out" holds ".."`},
		{"inner ..", "SBX-218", archiveOf(t, good, tar.Header{Name: "a/../../out", Typeflag: tar.TypeReg}), `the name "a/../../out" holds ".."`},
		{"absolute", "SBX-218", archiveOf(t, good, tar.Header{Name: "/tmp/out", Typeflag: tar.TypeReg}), `the name "/tmp/out" is absolute`},
		{"device", "SBX-218", archiveOf(t, good, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), `"null" is neither a file, a directory nor a link (type '3')`},
		{"pipe", "SBX-218", archiveOf(t, good, tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}), `"fifo" is neither a file, a directory nor a link (type '6')`},
		{"through a symlink", "SBX-215", archiveOf(t, good, tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "link/out", Typeflag: tar.TypeReg}), `copy into "/tmp/in/link": a symbolic link is in the way`},
		{"torn", "SBX-218", archiveOf(t, good)[:700], "read the archive: it is no tar, perhaps a compressed one, or it is cut short: unexpected EOF"},
		{"no archive", "SBX-218", strings.Repeat("nothing of the kind", 100), "read the archive: it is no tar, perhaps a compressed one, or it is cut short: archive/tar: invalid tar header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemon.Run(t, "exec", "files", "--", "mkdir", "-p", "/tmp/in")
			f := daemon.TryWith(tt.archive, "cp", "--json", "-", "files:/tmp/in").Refused(t, tt.code)
			if text := strings.TrimSuffix(f.Error.Message+": "+f.Error.Cause, ": "); text != tt.message {
				t.Errorf("message %q, want %q", text, tt.message)
			}
			if out := daemon.Run(t, "exec", "files", "--", "find", "/tmp", "-mindepth", "1").Stdout; out != "/tmp/in\n" {
				t.Errorf("left behind:\n%s", out)
			}
		})
	}
	if r := daemon.TryWith(archiveOf(t, good), "cp", "-", "files:/tmp/in"); r.Code != 0 { // the same without what is bad
		t.Errorf("a good archive: code %d, %s", r.Code, r.Stderr)
	}
	for _, tt := range []struct{ path, code, message string }{
		{"relative", "SBX-211", `path "relative" is not absolute`},
		{"/no/such/place", "SBX-212", `copy "/no/such/place"`},
		{"/proc/1/mem", "SBX-213", `copy "/proc/1/mem"`},
	} {
		target := filepath.Join(t.TempDir(), "out")
		f := daemon.Refused(t, tt.code, "cp", "--json", "files:"+tt.path, target)
		if _, err := os.Lstat(target); f.Error.Message != tt.message || !os.IsNotExist(err) {
			t.Errorf("copy of %q: message %q, and here: %v", tt.path, f.Error.Message, err)
		}
	}
}

// A path with a NUL byte cannot be said on a command line: it comes by the API.
func TestNULOverTheAPI(t *testing.T) {
	box(t, daemon, "nul")
	daemon.Run(t, "exec", "nul", "--", "touch", "/tmp/x")
	const execs = "/v1/sandboxes/nul/execs?wait=true"
	for _, tt := range []struct{ method, body, code, message string }{
		{execs, `{"exec":{"args":["echo","a\u0000b"]}}`, "SBX-101", "argument 1 holds a NUL byte"},
		{execs, `{"exec":{"args":["true"],"env":{"A":"b\u0000c"}}}`, "SBX-101", `environment variable \"A\" holds a NUL byte`},
		{execs, `{"exec":{"args":["true"],"workdir":"/a\u0000b"}}`, "SBX-101", `working directory \"/a\\x00b\" is not a clean absolute path`},
		{"FileService/Stat", `{"ref":"nul","path":"/tmp/a\u0000b"}`, "SBX-211", `path \"/tmp/a\\x00b\" holds a NUL`},
		{"FileService/ListDir", `{"ref":"nul","path":"/tmp/a\u0000b"}`, "SBX-211", `path \"/tmp/a\\x00b\" holds a NUL`},
		{"FileService/MakeDir", `{"ref":"nul","path":"/tmp/a\u0000b"}`, "SBX-211", `path \"/tmp/a\\x00b\" holds a NUL`},
		{"FileService/MoveFile", `{"ref":"nul","from":"/tmp/x","to":"/tmp/a\u0000b"}`, "SBX-211", `path \"/tmp/a\\x00b\" holds a NUL`},
		{"FileService/RemoveFile", `{"ref":"nul","path":"/tmp/x\u0000y"}`, "SBX-211", `path \"/tmp/x\\x00y\" holds a NUL`},
		{execs, `{"exec":{"args":["true"],"user":"a\u0000b"}}`, "SBX-205", `user \"a\\x00b\" is neither a name nor a number`},
		{"ExecService/List", `{"ref":"n\u0000ul"}`, "SBX-101", `ref \"n\\x00ul\" is not a name`},
		{"SandboxService/Create", `{"spec":{"name":"a\u0000b"}}`, "SBX-101", `name \"a\\x00b\" is not a name`},
		{"SandboxService/Create", `{"spec":{"workspace":{"dir":"/tmp/a\u0000b"}}}`, "SBX-104", `host directory \"/tmp/a\\x00b\" is not a clean absolute path`},
	} {
		path := "/caisson.v1." + tt.method
		if tt.method == execs {
			path = execs
		}
		status, body := call(t, daemon, http.MethodPost, path, tt.body)
		if status/100 != 4 || !strings.Contains(body, tt.code) || !strings.Contains(body, tt.message) {
			t.Errorf("%s %s: %d %s", tt.method, tt.body, status, body)
		}
	}
	if jobs := ps(t, daemon, "nul"); len(jobs) != 1 {
		t.Errorf("commands %+v", jobs)
	}
	if out := daemon.Run(t, "exec", "nul", "--", "ls", "-A", "/tmp").Stdout; out != "x\n" {
		t.Errorf("in /tmp:\n%s", out)
	}
	if l := list(t, daemon); len(l) != 1 {
		t.Errorf("sandboxes %+v", l)
	}
}
