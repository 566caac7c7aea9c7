package integration

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCopyBothWays(t *testing.T) {
	box(t, daemon, "cp")
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	data := random(300_000)
	for path, mode := range map[string]os.FileMode{"sub/blob": 0o640, "run.sh": 0o755} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(src, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, path), data, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(src, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/blob", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	daemon.Run(t, "cp", src, "cp:/tmp")
	out := daemon.Run(t, "exec", "cp", "--", "sh", "-c", "cd /tmp/src; stat -c '%n %a %u' run.sh sub/blob; readlink link; wc -c < link").Stdout
	if out != "run.sh 755 1000\nsub/blob 640 1000\nsub/blob\n300000\n" {
		t.Errorf("inside:\n%s", out)
	}
	back := filepath.Join(dir, "back")
	daemon.Run(t, "cp", "cp:/tmp/src", back)
	if got, err := os.ReadFile(filepath.Join(back, "link")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if st, err := os.Stat(filepath.Join(back, "run.sh")); err != nil || st.Mode() != 0o755 {
		t.Errorf("mode %v, %v", st, err)
	}
}

// beginCopy copies the first half of an archive into /tmp of a sandbox, for now.
func beginCopy(t *testing.T, ref string, archive []byte) *client {
	t.Helper()
	c := beside(t, daemon, "cp", "--json", "-", ref+":/tmp")
	c.send(t, string(archive[:len(archive)/2]))
	await(t, "the begin of the copy", func() bool { return strings.HasPrefix(inTmp(t, ref), ".caisson-") })
	return c
}

func inTmp(t *testing.T, ref string) string {
	t.Helper()
	return daemon.Run(t, "exec", ref, "--", "ls", "-A", "/tmp").Stdout
}

// awaitCopied waits until no copy is under way in a sandbox, and fails t unless that is
// what is in its /tmp.
func awaitCopied(t *testing.T, ref, want string) {
	t.Helper()
	await(t, "the end of what copies", func() bool {
		return !strings.Contains(daemon.Run(t, "exec", ref, "--", "ps", "-o", "args").Stdout, "caisson-init files")
	})
	if got := inTmp(t, ref); got != want {
		t.Errorf("there is %q in /tmp, want %q", got, want)
	}
}

// A copy waits while its sandbox is paused and goes on after that, in both directions;
// none is begun meanwhile.
func TestPausedCopy(t *testing.T) {
	box(t, daemon, "still")
	const large = 256 << 20 // more than lies between the ends of a copy
	daemon.Run(t, "exec", "still", "--", "truncate", "-s", strconv.Itoa(large), "/tmp/large")
	data := random(8 << 20)
	archive := tarOf(t, []file{{name: "file", data: data, mode: 0o644}})
	in := beginCopy(t, "still", archive)
	out := daemon.Command(t.Context(), "cp", "still:/tmp/large", "-")
	pipe, err := out.StdoutPipe()
	if err == nil {
		err = out.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	content := tar.NewReader(pipe)
	if _, err := content.Next(); err != nil {
		t.Fatal(err)
	}
	daemon.Run(t, "pause", "still")
	daemon.Refused(t, "SBX-114", "cp", "--json", "/etc/hostname", "still:/tmp")
	daemon.Refused(t, "SBX-114", "cp", "--json", "still:/tmp/large", t.TempDir())
	rest := make(chan error, 1)
	go func() {
		_, err := in.stdin.Write(archive[len(archive)/2:])
		rest <- errors.Join(err, in.stdin.Close())
	}()
	came := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, content) // how many says it
		came <- n
	}()
	select {
	case <-in.ended:
		t.Errorf("the copy in ended: %s%s", in.stdout(), in.stderr())
	case <-came:
		t.Error("the copy out ended")
	case <-time.After(200 * time.Millisecond): // time in which a copy that is not held goes far
	}
	daemon.Run(t, "resume", "still")
	if code := in.end(t); code != 0 || <-rest != nil {
		t.Errorf("the copy in: code %d, %s%s", code, in.stdout(), in.stderr())
	}
	if n := <-came; n != large {
		t.Errorf("%d bytes came out, want %d", n, large)
	}
	if err := out.Wait(); err != nil {
		t.Errorf("the copy out: %v", err)
	}
	awaitCopied(t, "still", "file\nlarge\n")
	if sum := daemon.Run(t, "exec", "still", "--", "sha256sum", "/tmp/file").Stdout; !strings.HasPrefix(sum, digest(data)) {
		t.Errorf("what went in is another file: %s", sum)
	}
}

// What comes out is clean of what could harm its receiver.
func TestCopyOutIsClean(t *testing.T) {
	box(t, daemon, "dirty")
	daemon.Run(t, "exec", "dirty", "--", "sh", "-c", `mkdir -p /tmp/d/sub; cd /tmp/d; echo ok > plain; cp plain suid; chmod 6755 suid
		ln -s /etc/shadow absolute; ln -s ../../../etc/passwd upwards; ln -s plain inner; mkfifo pipe; touch "$(printf 'odd\nname')"; touch "$(printf '\033[31mred')"`)
	r := daemon.Run(t, "cp", "dirty:/tmp/d", "-")
	names := map[string]*tar.Header{}
	for tr := tar.NewReader(strings.NewReader(r.Stdout)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[strings.TrimSuffix(h.Name, "/")] = h
	}
	for _, name := range []string{"d", "d/sub", "d/plain", "d/suid", "d/inner"} {
		if names[name] == nil {
			t.Errorf("%s did not come", name)
			continue
		}
		if names[name].Mode&0o7000 != 0 {
			t.Errorf("%s has mode %o", name, names[name].Mode)
		}
	}
	if len(names) != 5 {
		t.Errorf("there came %d entries: %v", len(names), names)
	}
	if n := strings.Count(r.Stderr, "left out"); n != 5 || strings.Contains(r.Stderr, "\033") {
		t.Errorf("%d told as left out: %q", n, r.Stderr)
	}
}

// The file calls of the API, as curl makes them.
//
//caisson:kernel
//caisson:smoke
func TestFileCalls(t *testing.T) {
	box(t, daemon, "fs")
	daemon.Run(t, "exec", "fs", "--", "sh", "-c", "mkdir -p /tmp/a/b; printf 0123456789 > /tmp/a/f; ln -s f /tmp/a/l; mkdir /tmp/times; touch -d @99999999999999 /tmp/times/far")
	for _, tt := range []struct {
		method, body string
		status       int
		says         []string
	}{
		{"Stat", `{"ref":"fs","path":"/tmp/a/f"}`, 200, []string{`"size_bytes":10`}},
		{"Stat", `{"ref":"fs","path":"/tmp/a/none"}`, 404, []string{"SBX-212"}},
		{"ListDir", `{"ref":"fs","path":"/tmp/a"}`, 200, []string{`"b"`, `"f"`, `"l"`}},
		{"ListDir", `{"ref":"fs","path":"/tmp/times"}`, 200, []string{"9999-12-31T"}},
		{"MakeDir", `{"ref":"fs","path":"/tmp/a/x/y","make_parents":true}`, 200, nil},
		{"MakeDir", `{"ref":"fs","path":"/etc/x"}`, 403, []string{"SBX-2"}},
		{"MoveFile", `{"ref":"fs","from":"/tmp/a/f","to":"/tmp/a/g"}`, 200, nil},
		{"RemoveFile", `{"ref":"fs","path":"/tmp/a/x"}`, 409, []string{"SBX-214"}},
		{"RemoveFile", `{"ref":"fs","path":"/tmp/a/x","recursive":true}`, 200, nil},
	} {
		status, body := post(t, daemon, "FileService/"+tt.method, tt.body)
		if status != tt.status {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.body, status, tt.status, body)
		}
		for _, s := range tt.says {
			if !strings.Contains(body, s) {
				t.Errorf("%s %s does not say %s: %s", tt.method, tt.body, s, body)
			}
		}
	}
	if out := daemon.Run(t, "exec", "fs", "--", "sh", "-c", "cd /tmp/a; ls; cat g").Stdout; out != "b\ng\nl\n0123456789" {
		t.Errorf("inside:\n%s", out)
	}
}
