package integration

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// reopens writes through its streams and opens them by name in between, so the lines of
// each are in order only if all ways lead to the same pipe. It ends with the sum of what
// its input holds.
const reopens = `echo 1; echo 2 > /dev/stdout; echo 3; echo 4 >> /proc/self/fd/1; echo 5 | tee /dev/stderr > /dev/fd/1
echo 6 >&2; echo 7 > /dev/stderr; . /dev/stdin; echo $? > /dev/stdout; cat /dev/stdin /proc/self/fd/0`

// What reopens writes with an empty input.
const reopenedOut, reopenedErr = "1\n2\n3\n4\n5\n0\n", "5\n6\n7\n"

// A command opens its standard streams by name, however it was started and as whatever
// user it runs.
func TestStreamsAreFiles(t *testing.T) {
	t.Parallel()
	need.Tools(t, "bash", "tee", "cat", "install")
	d := harness.StartWith(t, unisolated)
	box(t, d, "files")
	box(t, d, "other", "--user", "2000:2001")
	check := func(name string, r harness.Result, out, errs string) {
		t.Helper()
		if r.Code != 0 || r.Stdout != out || r.Stderr != errs {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q, %q", name, r.Code, r.Stdout, r.Stderr, out, errs)
		}
	}
	for name, args := range map[string][]string{
		"run": {"run"}, "user": {"run", "--user", "2000:2001"}, "exec": {"exec", "files"}, "exec as the user": {"exec", "other"},
	} {
		check(name, d.Try(append(args, "--", "sh", "-c", reopens)...), reopenedOut, reopenedErr)
		withInput := append(append([]string{args[0], "-i"}, args[1:]...), "--", "sh", "-c", reopens)
		check(name+" -i", d.TryWith("echo sourced\n", withInput...), strings.Replace(reopenedOut, "0\n", "sourced\n0\n", 1), reopenedErr)
	}
	check("host", d.Try("run", "--profile", "host", "--", "bash", "-c", reopens), reopenedOut, reopenedErr+unisolatedNote(t, d))
	r := d.TryWith("data", "run", "-i", "--profile", "host", "--", "bash", "-c", "cd $(mktemp -d) && install /dev/stdin f && cat f && rm f && rmdir $PWD")
	check("install", r, "data", unisolatedNote(t, d))
	for name, flags := range map[string][]string{"run --json": {"--"}, "user --json": {"--user", "2000:2001", "--"}} {
		if r := d.RunJSON(t, append(flags, "sh", "-c", reopens)...); r.Stdout != reopenedOut || r.Stderr != reopenedErr {
			t.Errorf("%s: %+v", name, r)
		}
	}
	d.Run(t, "run", "-d", "--name", "job", "--", "sh", "-c", reopens)
	check("run -d", d.Try("logs", "--follow", "job"), reopenedOut, reopenedErr)
	number := start(t, d, "other", "sh", "-c", reopens)
	check("exec -d", d.Try("logs", "--follow", "--exec", number, "other"), reopenedOut, reopenedErr)
	if r := d.Try("run", "-t", "--", "sh", "-c", "echo x > /dev/stdout"); r.Code != 0 || r.Stdout != "x\r\n" {
		t.Errorf("on a terminal: %+v", r)
	}
}

// unisolatedNote is what the command line prints before a command without isolation.
func unisolatedNote(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	return d.Run(t, "run", "--profile", "host", "--", "true").Stderr
}

// The steps of a build open their streams too, and so does the command of an image whose
// log file is a link to one.
func TestStreamsOfAnImage(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	r := d.TryWith(`FROM base
RUN id -u > /dev/stdout
USER root
RUN id -u > /dev/stderr; mkdir /var/log; ln -s /dev/stdout /var/log/access.log; ln -s /dev/stderr /var/log/error.log
USER 33:34
RUN id -u | tee /dev/stdout
CMD ["sh", "-c", "echo got >> /var/log/access.log; echo bad >> /var/log/error.log"]
`, "image", "build", "logging", "-f", "-")
	for _, line := range []string{"\n1000\n", "\n0\n", "\n33\n33\n"} {
		if r.Code != 0 || !strings.Contains(r.Stderr, line) {
			t.Errorf("build: no %q in:\n%s", line, r.Stderr)
		}
	}
	if r := d.Run(t, "run", "--image", "logging"); r.Stdout != "got\n" || r.Stderr != "bad\n" {
		t.Errorf("its command: %+v", r)
	}
}

// What a command writes directly and through /dev/stdout by turns comes in order. A
// gigabyte that passes both reopened streams is exact.
func TestReopenedStreamsAreExact(t *testing.T) {
	box(t, daemon, "exact")
	const turns = `i=0; while [ $i -lt 20000 ]; do echo $i; echo $((i+1)) > /dev/stdout; i=$((i+2)); done`
	checkCount(t, "by turns", daemon.Run(t, "exec", "exact", "--", "sh", "-c", turns).Stdout, 20000)

	in, sent := stream(3)
	got := &throttle{Hash: sha256.New()}
	cmd := daemon.Command(t.Context(), "exec", "-i", "exact", "--", "sh", "-c", "cat /dev/stdin > /dev/stdout")
	cmd.Stdin, cmd.Stdout = in, got
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	compareSums(t, got.n, got, sent)
}

// A command opens its streams after its daemon was killed and another one took over.
func TestReopenedStreamsOverAKill(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "late")
	c := beside(t, d, "exec", "-i", "late", "--", "sh", "-c",
		"echo up; while [ ! -e /tmp/go ]; do usleep 1000; done; echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin > /dev/fd/1; "+counting)
	c.awaitStdout(t, "up\n")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "exec", "late", "--", "touch", "/tmp/go")
	c.send(t, "in\n")
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	c.awaitStdout(t, "in\n0\n")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "exec", "late", "--", "touch", "/tmp/stop")
	if code := c.end(t); code != 9 || !strings.HasPrefix(c.stdout(), "up\nout\nin\n0\n") || !strings.Contains(c.stderr(), "err\n") {
		t.Errorf("exit code %d, stdout %.100q, stderr %q", code, c.stdout(), c.stderr())
	}
	checkCount(t, "late", strings.TrimPrefix(c.stdout(), "up\nout\nin\n"), 1)
}

// A command can open the other ends of its pipes. It then takes its own output away or
// never sees the end of its input. The daemon waits for neither.
func TestWrongEndsOfStreams(t *testing.T) {
	box(t, daemon, "ends")
	for name, tc := range map[string]struct {
		script, stdin, want string
	}{
		"its own output, read":          {"exec 3< /dev/stdout; echo text; read -t 1 line <&3; echo got $line", "", "got text\n"},
		"its own output, read for good": {"sleep 1000 < /dev/stdout > /dev/null 2>&1 & echo text", "", "text\n"},
		"both ends, kept open":          {"sleep 1000 3<> /dev/stdout & echo text", "", "text\n"},
		"its own input, written":        {"exec 3> /dev/stdin; read line; echo text >&3; read own; echo $line $own", "in\n", "in text\n"},
		"its own input, kept open":      {"sleep 1000 3<> /dev/stdin > /dev/null 2>&1 & read line; echo $line", "in\n", "in\n"},
		"its own input, filled":         {"exec 3<> /dev/stdin; head -c 65536 /dev/zero >&3; echo full", "", "full\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := beside(t, daemon, "exec", "-i", "ends", "--", "sh", "-c", tc.script)
			c.send(t, tc.stdin)
			if err := c.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			// Who reads first has the line: the command, or the daemon on a busy host.
			if code, got := c.end(t), c.stdout(); code != 0 || got != tc.want && got != "text\ngot\n" {
				t.Errorf("exit code %d, %q, want %q; %s", code, got, tc.want, c.stderr())
			}
		})
	}
	t.Run("an input that only a reopened end reads", func(t *testing.T) {
		const size = 1 << 20
		c := beside(t, daemon, "exec", "-i", "ends", "--", "sh", "-c", "exec 3< /dev/stdin; exec < /dev/null; echo up; sleep 0.3; cat <&3 | wc -c")
		c.awaitStdout(t, "up\n")
		c.send(t, strings.Repeat("x", size))
		if err := c.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		if code, want := c.end(t), fmt.Sprintf("up\n%d\n", size); code != 0 || c.stdout() != want {
			t.Errorf("exit code %d, %q, want %q", code, c.stdout(), want)
		}
	})
	if r := daemon.Run(t, "exec", "ends", "--", "echo", "served"); r.Stdout != "served\n" {
		t.Errorf("afterwards: %+v", r)
	}
}
