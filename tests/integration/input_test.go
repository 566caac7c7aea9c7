package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// secret is in no text but the input files of these tests.
const secret = "s3cret-of-an-input-file"

func inputFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkNoInput fails t if a file of an earlier command is in the sandbox.
func checkNoInput(t *testing.T, d *harness.Daemon, ref, after string) {
	t.Helper()
	if out := d.Run(t, "exec", ref, "--", "find", "/dev/shm", "/tmp", "/var/tmp", "-mindepth", "1").Stdout; out != "" {
		t.Errorf("after %s there is %q", after, out)
	}
}

// An input file is there as long as its command, however that ends.
func TestInputFile(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	box(t, d, "in")
	file := inputFile(t, "key", secret)
	const look = `stat -c "%a %u %g %F" "$0"; cat "$0"`
	for _, tt := range []struct{ name, input, at, mode string }{
		{"name of the file", file, "/dev/shm/caisson-input/key", "400"},
		{"name", file + ":token", "/dev/shm/caisson-input/token", "400"},
		{"path", file + ":/tmp/token", "/tmp/token", "400"},
		{"mode", file + ":/var/tmp/token:0640", "/var/tmp/token", "640"},
		{"mode alone", file + "::0600", "/dev/shm/caisson-input/key", "600"},
	} {
		want := tt.mode + " 1000 1000 regular file\n" + secret
		for _, flags := range [][]string{nil, {"--ulimit", "nofile=64"}, {"-m", "32M"}} {
			args := append(append([]string{"exec", "--input", tt.input}, flags...), "in", "--", "sh", "-c", look, tt.at)
			if out := d.Run(t, args...).Stdout; out != want {
				t.Errorf("%s %v: printed %q, want %q", tt.name, flags, out, want)
			}
			checkNoInput(t, d, "in", tt.name)
		}
		if out := d.Run(t, "run", "--input", tt.input, "--", "sh", "-c", look, tt.at).Stdout; out != want {
			t.Errorf("run, %s: printed %q, want %q", tt.name, out, want)
		}
	}
	for name, tt := range map[string]struct {
		code  int
		flags []string
		args  []string
	}{
		"an exit code":       {3, nil, []string{"sh", "-c", "exit 3"}},
		"a signal":           {137, nil, []string{"sh", "-c", "kill -9 $$"}},
		"a timeout":          {124, []string{"--timeout", "200ms"}, []string{"sleep", "60"}},
		"no such program":    {127, nil, []string{"no-such-program"}},
		"none, with limits":  {127, []string{"--pids", "8"}, []string{"no-such-program"}},
		"a refused rlimit":   {125, []string{"--ulimit", "nproc=100000"}, []string{"true"}},
		"no directory":       {125, []string{"-w", "/no/such"}, []string{"true"}},
		"removal by it":      {0, nil, []string{"rm", "-f", "/dev/shm/caisson-input/key"}},
		"a background child": {0, nil, []string{"sh", "-c", "sleep 1000 >/dev/null 2>&1 &"}},
	} {
		args := append(append([]string{"exec", "--input", file}, tt.flags...), "in", "--")
		if r := d.Try(append(args, tt.args...)...); r.Code != tt.code {
			t.Errorf("%s: code %d, want %d\n%s", name, r.Code, tt.code, r.Stderr)
		}
		checkNoInput(t, d, "in", name)
	}
	if out := d.Run(t, "exec", "--input", file+":one", "--input", file+":/tmp/two", "in", "--", "sh", "-c", "cat /dev/shm/caisson-input/one /tmp/two").Stdout; out != secret+secret {
		t.Errorf("two files hold %q", out)
	}
	// A file that took the place of the input file is the command's own.
	d.Run(t, "exec", "--input", file+":/tmp/mine", "in", "--", "sh", "-c", "rm -f /tmp/mine; echo own > /tmp/mine")
	if out := d.Run(t, "exec", "in", "--", "cat", "/tmp/mine").Stdout; out != "own\n" {
		t.Errorf("the command's own file holds %q", out)
	}
}

// Nothing is written over, nothing is written where it would outlive the sandbox, and
// what the daemon takes is bounded.
func TestInputFileIsRefused(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	box(t, d, "in", "--workspace", dir)
	file, large := inputFile(t, "key", secret), inputFile(t, "large", strings.Repeat("x", 1<<20))
	d.Run(t, "exec", "in", "--", "sh", "-c", "echo old > /tmp/old; ln -s /workspace /tmp/out; ln -s /workspace/k /tmp/link; echo probe > /workspace/probe")
	for name, tt := range map[string]struct {
		code, text string
		flags      []string
	}{
		"a path that exists":    {"SBX-101", "file exists", []string{file + ":/tmp/old"}},
		"a symlink":             {"SBX-101", "file exists", []string{file + ":/tmp/link"}},
		"a way out of a tmpfs":  {"SBX-101", "not a directory", []string{file + ":/tmp/out/key"}},
		"no directory":          {"SBX-101", "no such file", []string{file + ":/tmp/no/key"}},
		"the workspace":         {"SBX-101", "no tmpfs", []string{file + ":/workspace/key"}},
		"the image":             {"SBX-101", "no tmpfs", []string{file + ":/etc/key"}},
		"a relative path":       {"SBX-101", "clean absolute path", []string{file + ":a/b"}},
		"an unclean path":       {"SBX-101", "clean absolute path", []string{file + ":/tmp/../etc/x"}},
		"no permission":         {"SBX-101", "0400", []string{file + "::0"}},
		"a set-user-ID bit":     {"SBX-101", "0400", []string{file + "::4500"}},
		"one path twice":        {"SBX-101", "twice", []string{file + ":x", large + ":x"}},
		"too much together":     {"SBX-101", "together", []string{file, large + ":a", large + ":b"}},
		"too many":              {"SBX-101", "17 input files", strings.Split(strings.Repeat(" "+file, 17), " ")[1:]},
		"a mode that is no one": {"SBX-801", "octal", []string{file + ":x:r"}},
		"too large":             {"SBX-801", "more than 1048576", []string{inputFile(t, "larger", strings.Repeat("x", 1<<20+1))}},
		"an absent file":        {"SBX-804", "no such file", []string{filepath.Join(dir, "absent")}},
	} {
		args := []string{"exec", "-o", "json"}
		for _, f := range tt.flags {
			args = append(args, "--input", f)
		}
		if f := d.Refused(t, tt.code, append(args, "in", "--", "true")...); !strings.Contains(f.Error.Message, tt.text) {
			t.Errorf("%s: %q lacks %q", name, f.Error.Message, tt.text)
		}
	}
	if out := d.Run(t, "exec", "in", "--", "sh", "-c", "cat /tmp/old; ls /workspace /dev/shm").Stdout; out != "old\n/dev/shm:\n\n/workspace:\nprobe\n" {
		t.Errorf("refused input files left %q", out)
	}
	d.Run(t, "exec", "--input", large+":a", "in", "--", "cmp", "/dev/shm/caisson-input/a", "/dev/shm/caisson-input/a")
}

// PID 1 removes the file where no daemon is there to do it, and the next daemon keeps
// its content nowhere.
func TestInputFileWithoutDaemon(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	id := box(t, d, "in")
	file := inputFile(t, "key", secret)
	const reads = `test -s /dev/shm/caisson-input/key; while [ ! -e /tmp/stop ]; do usleep 1000; done; cat /dev/shm/caisson-input/key > /dev/null`
	number := strings.TrimSpace(d.Run(t, "exec", "-d", "--input", file, "in", "--", "sh", "-ec", reads).Stdout)
	if out := d.Run(t, "exec", "in", "--", "sh", "-c", "wc -c < /dev/shm/caisson-input/key").Stdout; out != "23\n" {
		t.Fatalf("while the command runs the file holds %q", out)
	}
	d.Refused(t, "SBX-101", "exec", "-o", "json", "--input", file, "in", "--", "true")
	checkUntold(t, d, "ps", "--json", "in")
	checkUntold(t, d, "inspect", "--all", id)
	checkUntold(t, d, "logs", "--exec", number, "in")
	if log := d.Run(t, "audit", "query", "--json", "--type", "exec.started").Stdout; !strings.Contains(log, `"inputs":[{"path":"/dev/shm/caisson-input/key","bytes":23}]`) {
		t.Errorf("the audit log does not name the input file:\n%s", log)
	}
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "exec", "in", "--", "touch", "/tmp/stop")
	if r := d.Try("wait", "in", number); r.Code != 0 {
		t.Errorf("the command could not read its file after the restart: code %d", r.Code)
	}
	d.Run(t, "exec", "in", "--", "rm", "/tmp/stop")
	checkNoInput(t, d, "in", "a restart")

	number = strings.TrimSpace(d.Run(t, "exec", "-d", "--input", file, "in", "--", "sleep", "1").Stdout)
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "wait", "in", number)
	checkNoInput(t, d, "in", "an end around a restart")
	if found := whereKept(t, d); len(found) > 0 {
		t.Errorf("%q have the content of an input file", found)
	}
	d.Run(t, "exec", "in", "--", "echo", secret)
	if len(whereKept(t, d)) == 0 {
		t.Error("output with the same content is not found")
	}
}

func checkUntold(t *testing.T, d *harness.Daemon, args ...string) {
	t.Helper()
	if r := d.Run(t, args...); strings.Contains(r.Stdout+r.Stderr, secret) {
		t.Errorf("%v tells the content of an input file", args)
	}
}

// whereKept are the files in which the daemon wrote the secret.
func whereKept(t *testing.T, d *harness.Daemon) (found []string) {
	t.Helper()
	if strings.Contains(d.Log(), secret) {
		found = append(found, "the log")
	}
	err := filepath.WalkDir(d.Root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "/containerd/") {
			return nil // gone meanwhile, or of images
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return found
}
