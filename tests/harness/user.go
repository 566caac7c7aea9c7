package harness

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// User calls a daemon as somebody who is not root.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary

	daemon *Daemon
	client string // a copy of the client that everybody may execute
}

// User returns the client of d for uid, which also is its only group.
func (d *Daemon) User(t testing.TB, uid uint32) User {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-u")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := User{UID: uid, GID: uid, daemon: d, client: filepath.Join(dir, "caisson")}
	for _, name := range []string{"caisson", "caisson-whole"} {
		copyProgram(t, Bin(t, name), filepath.Join(dir, name))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return u
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	// A child that is forked meanwhile would hold it open for writing, and it could
	// not be executed (execve(2), ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// Try makes a client call as the user.
func (u User) Try(args ...string) Result { return u.TryWith("", args...) }

// TryWith is Try with an input.
func (u User) TryWith(stdin string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.client, args...)
	cmd.Env = []string{"CAISSON_SOCKET=" + u.daemon.Socket, "PATH=/usr/bin:/bin"}
	cmd.Dir, cmd.Stdin = "/", strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}}
	return finish(cmd, args)
}

// finish runs a client call to its end.
func finish(cmd *exec.Cmd, args []string) Result {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if err != nil && r.Code < 0 {
		r.Stderr += "\n[the client ended with " + err.Error() + "]"
	}
	return r
}

// Run makes a client call as the user that must succeed.
func (u User) Run(t testing.TB, args ...string) Result {
	t.Helper()
	r := u.Try(args...)
	if r.Code != 0 {
		t.Fatalf("caisson %q as %d: exit code %d\nstdout: %s\nstderr: %s", args, u.UID, r.Code, r.Stdout, r.Stderr)
	}
	return r
}

// Refused makes a call as the user that must be refused with the given code.
func (u User) Refused(t testing.TB, code string, args ...string) Failure {
	t.Helper()
	return u.Try(args...).Refused(t, code)
}
