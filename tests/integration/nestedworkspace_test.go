package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// shared is a workspace with the client, of the user owner:
//
//	sub/file        says "shared"
//	sub/deep/       can be written
//	closed/open/    is open to all, in a directory of root's alone
//	link            leads to sub
func shared(t *testing.T, owner int) string {
	t.Helper()
	dir := withClient(t)
	errs := []error{
		os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755), os.WriteFile(filepath.Join(dir, "sub/file"), []byte("shared\n"), 0o644),
		os.Symlink("sub", filepath.Join(dir, "link")),
	}
	for _, name := range []string{".", "sub", "sub/deep", "sub/file"} {
		errs = append(errs, os.Chown(filepath.Join(dir, name), owner, owner))
	}
	closed := filepath.Join(dir, "closed")
	errs = append(errs, os.MkdirAll(filepath.Join(closed, "open"), 0o777), os.Chmod(filepath.Join(closed, "open"), 0o777), os.Chmod(closed, 0o700))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sharing makes a sandbox that may give directories of its workspace to its children.
func sharing(t *testing.T, d *harness.Daemon, name, workspace string, flags ...string) inside {
	t.Helper()
	box(t, d, name, append([]string{"--nested", "-m", "256M", "--cpus", "2", "--workspace", workspace}, flags...)...)
	return insideOf(d, name)
}

func smallRun(workspace string, command ...string) []string {
	return append(append([]string{"run", "--json", "--workspace", workspace}, small...), append([]string{"--"}, command...)...)
}

// A child gets a directory of its parent's workspace, with the same ids on disk and no
// more rights. From outside each of the directories can be given.
func TestNestedWorkspace(t *testing.T) {
	t.Parallel()
	const owner = 4321
	d := harness.StartWith(t, "")
	dir := shared(t, owner)
	in := sharing(t, d, "outer", dir)
	in.run(t, "run", "--workspace", "/workspace/sub", "-m", "64M", "--cpus", "0.5", "--pids", "50", "--", "sh", "-c", "cat file && echo made > made && test ! -e ../sub")
	st, err := os.Stat(filepath.Join(dir, "sub/made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(st); uid != owner {
		t.Errorf("what a child made belongs to %d", uid)
	}
	in.run(t, smallRun("/workspace", "cat", "sub/made")...)
	in.run(t, smallRun("/workspace/sub:/data:ro", "cat", "/data/made")...)
	if r := in.try(smallRun("/workspace/sub:ro", "touch", "other")...); r.Code != 1 || !strings.Contains(r.Stdout, "Read-only") {
		t.Errorf("write to a directory that is given read-only: code %d, %s", r.Code, r.Stdout)
	}
	foreign := filepath.Join(dir, "foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o777), os.Chmod(foreign, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code, says, workspace string
	}{
		{"SBX-104", "symbolic link", "/workspace/link"},
		{"SBX-104", "not a directory", "/workspace/caisson"},
		{"SBX-805", "outside of its workspace", "/tmp"},
		{"SBX-805", "outside of its workspace", "/"},
		{"SBX-805", "outside of its workspace", "/workspace/../etc"},
		{"SBX-805", "may not", "/workspace/closed:ro"},
		{"SBX-805", "belongs to somebody else", "/workspace/foreign"},
	} {
		f := in.refused(t, tt.code, smallRun(tt.workspace, "ls")...)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, tt.says) || strings.Contains(all, dir) {
			t.Errorf("%s: it does not say %q, or tells of the host: %s", tt.workspace, tt.says, all)
		}
	}
	in.run(t, smallRun("/workspace/foreign:ro", "ls")...)
	d.Run(t, "run", "--workspace", filepath.Join(dir, "closed/open"), "--", "ls")
	if f := throughAPI(t, in, "/workspace/sub"); !strings.Contains(f, `"id"`) {
		t.Errorf("a directory that can be given: %s", f)
	}
	f := throughAPI(t, in, "/workspace/closed/open")
	if !strings.Contains(f, "SBX-805") || !strings.Contains(f, "may not read") {
		t.Errorf("a directory behind a closed one: %s", f)
	}
	if f := throughAPI(t, in, dir); !strings.Contains(f, "SBX-805") || !strings.Contains(f, "outside of its workspace") {
		t.Errorf("the path of the host: %s", f)
	}
}

// throughAPI asks for a sandbox with a workspace by the socket inside, which no client
// looked at.
func throughAPI(t *testing.T, in inside, workspace string) string {
	t.Helper()
	socket := filepath.Join(in.daemon.State, "sandboxes", inspect(t, in.daemon, in.name).ID, "init/api.sock")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	body := fmt.Sprintf(`{"workspace":{"dir":%q,"mode":"ro"},"limits":{"memoryBytes":"67108864","milliCpu":"500","pids":"50"}}`, workspace)
	r, err := client.Post("http://caisson/v1/sandboxes", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// A workspace that is read-only is so for children too, and one with mounts in it is none of
// theirs: they would see the files that the mounts cover.
func TestNestedWorkspaceIsNoMore(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := shared(t, 0)
	in := sharing(t, d, "reader", dir+":ro")
	if f := in.refused(t, "SBX-805", smallRun("/workspace/sub", "ls")...); !strings.Contains(f.Error.Message+f.Error.Cause, "is read-only") || !strings.Contains(f.Error.Remedy, ":ro") {
		t.Errorf("%+v", f.Error)
	}
	if out := in.run(t, append(append([]string{"run", "--workspace", "/workspace/sub:ro"}, small...), "--", "cat", "file")...); out != "shared\n" {
		t.Errorf("it reads %q", out)
	}
	in = sharing(t, d, "covered", dir, "--mount", "type=tmpfs,dst=/workspace/sub")
	d.Run(t, "exec", "covered", "--", "test", "!", "-e", "/workspace/sub/file")
	for _, workspace := range []string{"/workspace/sub", "/workspace"} {
		if f := in.refused(t, "SBX-805", smallRun(workspace, "ls")...); !strings.Contains(f.Error.Message+f.Error.Cause, "other mounts in it") {
			t.Errorf("%s: %+v", workspace, f.Error)
		}
	}
	box(t, d, "none", "--nested", "-m", "256M", "--cpus", "2", "--mount", "type=bind,src="+dir+",dst=/tools,ro")
	r := d.Try(append([]string{"exec", "none", "--", "/tools/caisson"}, smallRun("/tools/sub", "ls")...)...)
	r.Refused(t, "SBX-805")
	d.Run(t, append([]string{"exec", "none", "--", "/tools/caisson", "run", "--mount", "type=tmpfs,dst=/scratch"}, append(small, "--", "touch", "/scratch/a")...)...)
}

// The parent may exchange what it names at any moment: the child has a directory beneath the
// workspace, or is refused.
func TestNestedWorkspaceRaces(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	dir := shared(t, 0)
	in := sharing(t, d, "outer", dir, "--nested-max", "2")
	away := workspace(t, 0, 0)
	if err := os.WriteFile(filepath.Join(away, "secret"), []byte("4f1d9c"), 0o644); err != nil {
		t.Fatal(err)
	}
	swapped, other := filepath.Join(dir, "swap"), filepath.Join(dir, "other")
	if err := errors.Join(os.Mkdir(swapped, 0o755), os.Symlink(away, other)); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, unix.ENOENT) {
				t.Error(err)
				return
			}
			if n%7 == 0 { // and for a moment it is not there
				gone := filepath.Join(dir, "gone")
				if err := errors.Join(os.Rename(swapped, gone), os.Rename(gone, swapped)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	given, refused := 0, 0
	for range 40 {
		r := in.try(smallRun("/workspace/swap:ro", "sh", "-c", "ls /workspace; cat /workspace/secret")...)
		switch {
		case strings.Contains(r.Stdout, "4f1d9c"):
			t.Errorf("a child has a directory of the host: %s", r.Stdout)
		case strings.Contains(r.Stdout, `"SBX-104"`):
			refused++
		default:
			given++
		}
	}
	close(stop)
	swapping.Wait()
	t.Logf("%d given, %d refused", given, refused)
	if given == 0 || refused == 0 {
		t.Errorf("%d given, %d refused: it was not exchanged meanwhile", given, refused)
	}
}

// The next daemon goes on with children that have a directory of their parent's workspace,
// and gives more, to grandchildren too. With the parent nothing is left.
func TestNestedWorkspaceStays(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, deep)
	dir := shared(t, 0)
	in := sharing(t, d, "outer", dir, "--profile", "team")
	in.run(t, smallBox("child", "--profile", "team", "--nested", "--tmpfs", "48M", "-m", "128M", "--workspace", "/workspace/sub")...)
	w := in.within(t, "child")
	check := func() {
		t.Helper()
		in.run(t, "exec", "child", "--", "cat", "file")
		in.run(t, smallRun("/workspace/sub", "cat", "file")...)
		w.run(t, "run", "--workspace", "/workspace/deep", "-m", "32M", "--cpus", "0.1", "--pids", "20", "--", "touch", "there")
		w.refused(t, "SBX-104", "run", "--json", "--workspace", "/workspace/sub", "--", "ls")
	}
	check()
	d.Kill(t)
	d.Launch(t)
	check()
	if _, err := os.Stat(filepath.Join(dir, "sub/deep/there")); err != nil {
		t.Error(err)
	}
	in.run(t, "restart", "child")
	in.run(t, "exec", "child", "--", "cat", "file")
	w = in.within(t, "child")
	if err := os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	w.run(t, "run", "--workspace", "/workspace/deep", "-m", "32M", "--cpus", "0.1", "--pids", "20", "--", "test", "-e", "there") // of the directory, not of its name
	in.refused(t, "SBX-104", "restart", "-o", "json", "child")
	in.run(t, "exec", "child", "--", "cat", "file") // it was not removed
	d.Run(t, "rm", "--force", "outer")
	d.AwaitNoSandbox(t)
}

// A user's child acts as that user.
func TestNestedWorkspaceOfAPeer(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	b := d.User(t, bob)
	dir := shared(t, bob)
	b.Run(t, "create", "--name", "outer", "--nested", "-m", "256M", "--cpus", "2", "--workspace", dir)
	try := func(args ...string) harness.Result {
		return b.Try(append([]string{"exec", "outer", "--", "/workspace/caisson"}, args...)...)
	}
	if r := try(smallRun("/workspace/sub", "touch", "made")...); r.Code != 0 {
		t.Fatalf("code %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	st, err := os.Stat(filepath.Join(dir, "sub/made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(st); uid != bob {
		t.Errorf("what a child made belongs to %d", uid)
	}
	try(smallRun("/workspace/closed:ro", "ls")...).Refused(t, "SBX-805")
}

// Ready sandboxes become parents and children, with a directory and a tmpfs, as new ones do.
func TestNestedWorkspaceInAPool(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {team: {mounts: [{type: tmpfs, target: /scratch, size: 1M}]}}\npools: [{profile: team, size: 2}]\n")
	awaitReady(t, d, 2)
	in := sharing(t, d, "outer", shared(t, 4321), "--profile", "team")
	hits := poolOf(t, d).Hits
	awaitReady(t, d, 2)
	in.run(t, "create", "--name", "child", "-m", "64M", "--cpus", "0.5", "--profile", "team", "--workspace", "/workspace/sub")
	if now := poolOf(t, d).Hits; hits != 1 || now != 2 {
		t.Errorf("the pool served %d, then %d", hits, now)
	}
	check := func() {
		t.Helper()
		d.Run(t, "exec", "child", "--", "sh", "-c", "cat file && touch /scratch/a made")
		in.run(t, append(append([]string{"run", "--workspace", "/workspace/sub:ro"}, small...), "--", "test", "-e", "made")...)
	}
	check()
	d.Kill(t)
	d.Launch(t)
	check()
	d.Run(t, "rm", "--force", "outer")
}
