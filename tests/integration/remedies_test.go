package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// followed is a daemon whose refusals are followed, and the files of a row.
type followed struct {
	*harness.Daemon
	dir string
}

// remedyRow is a call that is refused, and succeeds after its refusal was followed.
type remedyRow struct {
	name, code string
	uid        uint32   // of the caller; 0 is root
	prepare    []string // a call before, of root
	args       []string // of the call
	find       string   // what the refusal says to do; the first group is followed to the letter
	follow     follow
}

// follow does what a refusal says, and returns the call that succeeds then.
type follow func(t *testing.T, f followed, r remedyRow, said string) []string

// execute runs what was said as the row's user, in a shell.
func execute(t *testing.T, f followed, r remedyRow, said string) []string {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", said)
	cmd.Env = []string{"CAISSON_SOCKET=" + f.Socket, "PATH=" + os.Getenv("CAISSON_BIN_DIR") + ":" + os.Getenv("PATH")}
	cmd.Dir = f.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", said, err, out)
	}
	return r.args
}

// instead makes the call that was said.
func instead(_ *testing.T, _ followed, _ remedyRow, said string) []string {
	return strings.Fields(strings.TrimPrefix(said, "caisson "))
}

// replace has what was said in the place of the argument old.
func replace(old string) follow {
	return func(_ *testing.T, _ followed, r remedyRow, said string) []string {
		args := slices.Clone(r.args)
		args[slices.Index(args, old)] = said
		return args
	}
}

// replaceFlag has the flags that were said in the place of a flag and its value.
func replaceFlag(name string) follow {
	return func(_ *testing.T, _ followed, r remedyRow, said string) []string {
		at := slices.Index(r.args, name)
		return slices.Replace(slices.Clone(r.args), at, at+2, strings.Fields(said)...)
	}
}

// before puts the line that was said before the line that begins with begin in a file.
func before(file, begin string) follow {
	return func(t *testing.T, f followed, r remedyRow, said string) []string {
		path := filepath.Join(f.dir, file)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\n"+begin) {
			t.Fatalf("%s: %v: %s", path, err, text)
		}
		write(t, path, strings.Replace(string(text), "\n"+begin, "\n"+said+"\n"+begin, 1))
		return r.args
	}
}

// configure puts what was said, in the place of old, into the configuration. With no old it is
// all of it.
func configure(old string) follow {
	return func(t *testing.T, f followed, r remedyRow, said string) []string {
		text := said + "\n"
		if old != "" {
			text = strings.Replace(f.Config, old, said, 1)
		}
		f.Configure(t, text)
		f.Run(t, "config", "reload")
		return r.args
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// try makes a call of the row's user.
func (f followed) try(t *testing.T, r remedyRow, args []string) harness.Result {
	if r.uid == 0 {
		return f.Try(args...)
	}
	return f.User(t, r.uid).Try(args...)
}

// remedyRows need a directory with what prepareRemedies makes.
func remedyRows(dir string) []remedyRow {
	own, made, file := filepath.Join(dir, "own"), filepath.Join(dir, "made"), filepath.Join(dir, "file")
	build := func(name string, flags ...string) []string {
		return slices.Concat([]string{"image", "build"}, flags, []string{name, filepath.Join(dir, name)})
	}
	return []remedyRow{
		{"a user who is not listed, on a socket of root's", "SBX-802", ann, nil, []string{"ls"}, `(peers: .*\]),`, configure("")},
		{"a user who is not listed", "SBX-805", bob, nil, []string{"ls"}, `(peers: .*\]),`, configure("")},
		{"a workspace with a group of root's", "SBX-805", bob, nil, []string{"run", "--workspace", own, "--", "touch", "there"}, `(chgrp .*)`, execute},
		{"other settings of a session", "SBX-106", 0, []string{"create", "--ensure", "--name", "session"},
			[]string{"create", "--ensure", "--name", "session", "-m", "256M"}, `(caisson rm --force \S+),`, execute},
		{"other settings, replaced", "SBX-106", 0, nil, []string{"create", "--ensure", "--name", "session", "-m", "128M"}, `give (--replace) instead of --ensure`, replace("--ensure")},
		{"a taken name", "SBX-106", 0, nil, []string{"create", "--name", "session"}, `(caisson rm --force \S+)`, execute},
		{"a paused sandbox", "SBX-114", 0, []string{"pause", "session"}, []string{"exec", "session", "--", "true"}, `(caisson resume \S+)`, execute},
		{"an unknown profile", "SBX-103", 0, nil, []string{"run", "--profile", "stric", "--", "true"}, `did you mean "(.*)"`, replace("stric")},
		{"an image as the command", "SBX-608", 0, []string{"image", "build", "greeter", filepath.Join(dir, "greeter")}, []string{"run", "greeter"}, `(caisson run --image .*)`, instead},
		{"an image without a command as the command", "SBX-608", 0, []string{"image", "tag", "base", "basic"}, []string{"run", "basic"}, `(caisson run --image .*)`, instead},
		{"an absent workspace", "SBX-104", 0, nil, []string{"run", "--workspace", made, "--", "true"}, `(mkdir -p .*)`, execute},
		{"a file as the workspace", "SBX-104", 0, nil, []string{"run", "--workspace", file, "--", "cat", "/dev/shm/caisson-input/file"}, `(--input .*)`, replaceFlag("--workspace")},
		{"an absent source of a mount", "SBX-104", 0, nil, []string{"run", "--mount", "type=bind,src=" + made + "/too,dst=/m", "--", "true"}, `(mkdir -p .*)`, execute},
		{"a full tmpfs in a build", "SBX-229", 0, nil, build("tmpfs", "--tmpfs", "16M"), `room: (.*)`, replaceFlag("--tmpfs")},
		{"a full disk in a build", "SBX-229", 0, nil, build("disk", "--tmpfs", "16M"), `room: (.*)`, replaceFlag("--tmpfs")},
		{"no memory in a build", "SBX-229", 0, nil, build("memory", "--memory", "48M"), `(--memory \S+)`, replaceFlag("--memory")},
		{"no rights in a build", "SBX-229", 0, nil, build("rights"), `put (USER root) before it`, before("rights/Dockerfile", "RUN")},
		{"an unknown key of the configuration", "SBX-105", 0, []string{"stop_grce: 3s\n"}, []string{"config", "reload"}, `did you mean "(.*)"`, configure("stop_grce")},
		{"a duration without a unit", "SBX-105", 0, []string{"stop_grace: 3\n"}, []string{"config", "reload"}, `line \d+: "3" is not a duration such as (\S+)`, configure("3")},
		{"an address as a registry", "SBX-105", 0, []string{"registries: {allowed: [\"https://docker.io/v2\"]}\n"}, []string{"config", "reload"},
			`config.yaml:\d+: .* it is (".*")`, configure(`"https://docker.io/v2"`)},
	}
}

// prepareRemedies makes the files of the rows in dir.
func prepareRemedies(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"greeter": "CMD [\"echo\", \"hello\"]", "tmpfs": "RUN dd if=/dev/zero of=/tmp/big bs=1M count=20", "disk": "USER root\nRUN dd if=/dev/zero of=/big bs=1M count=20",
		"memory": "RUN dd if=/dev/zero of=/dev/null bs=60M count=1", "rights": "RUN echo > /etc/made",
	} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "Dockerfile"), "FROM base\n"+text+"\n")
	}
	write(t, filepath.Join(dir, "file"), "content")
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, bob, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// A refusal says what to do, and who does it to the letter has what was asked for.
func TestRemedies(t *testing.T) {
	t.Parallel()
	f := followed{harness.StartWith(t, ""), workspace(t, 0, 0)}
	prepareRemedies(t, f.dir)
	t.Cleanup(func() { f.Try("rm", "--force", "session") })
	for _, r := range remedyRows(f.dir) {
		t.Run(r.name, func(t *testing.T) {
			switch {
			case r.args[0] == "config":
				f.Configure(t, r.prepare[0])
			case r.prepare != nil:
				f.Run(t, r.prepare...)
			}
			refused := f.try(t, r, r.args)
			said := regexp.MustCompile("(?m)" + r.find).FindStringSubmatch(refused.Stderr)
			if refused.Code == 0 || !strings.Contains(refused.Stderr, "["+r.code+"]") || said == nil {
				t.Fatalf("code %d, want %s and %s in:\n%s", refused.Code, r.code, r.find, refused.Stderr)
			}
			args := r.follow(t, f, r, said[1])
			if got := f.try(t, r, args); got.Code != 0 {
				t.Errorf("after %q, %q: code %d\n%s%s", said[1], args, got.Code, got.Stdout, got.Stderr)
			}
		})
	}
}
