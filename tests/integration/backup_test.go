package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const oddFiles = `cd /v; umask 0; echo text >a; chmod 2751 a; ln a 'odd
name'; ln -s /etc/passwd link; mkfifo pipe; mkdir -m 1770 dir; touch -d @981173106 dir/old; truncate -s 64M holes; echo end >>holes`

const layersWithHoles = "FROM base\nUSER root\nRUN mkdir /d; echo 1 >/d/old; echo 1 >/gone\nRUN rm -r /d /gone; mkdir /d; echo 2 >/d/new\nUSER 1000\n"

const lookAtOddFiles = `cd /v; stat -c '%n %F %u:%g %a %h %s %Y' * dir/old; cat a; readlink link; tail -c 4 holes`

// TestBackup: what a host kept is there and works on another one, which had nothing, and no
// value of a secret came along.
func TestBackup(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	a := harness.StartWith(t, devProfile)
	user := a.User(t, ann)
	const canary = "canary-of-the-secret-7191"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := workspace(t, 0, 0)
	writeTree(t, dir)

	const plain, sized = "type=volume,src=data,dst=/v", "type=volume,src=sized,dst=/v"
	user.Run(t, "volume", "create", "data")
	user.Run(t, "run", "--mount", plain, "--", "sh", "-c", oddFiles)
	want := user.Run(t, "run", "--mount", plain, "--", "sh", "-c", lookAtOddFiles).Stdout
	if !strings.Contains(want, "fifo") || !strings.HasSuffix(want, "end\n") {
		t.Fatalf("in the volume: %s", want)
	}
	user.Run(t, "volume", "create", "--size", "32M", "sized")
	user.Run(t, "run", "--mount", sized, "--", "sh", "-c", "echo sized >/v/f")
	a.Run(t, "create", "--name", "s", "--profile", "dev", "--user", "root")
	a.Run(t, "exec", "s", "--", "sh", "-c", "mkdir /opt/deps && echo dep >/opt/deps/f && echo root >/root-file")
	a.Run(t, "snapshot", "create", "s", "--name", "whole")
	a.Run(t, "snapshot", "create", "s", "--name", "deps", "--path", "/opt/deps")
	a.Run(t, "run", "--name", "c", "--workspace", dir+":cow", "--", "sh", "-c", "echo changed >new")
	await(t, "a changeset", func() bool { return len(changesetsOf(t, a.Try)) == 1 })
	changed := a.Run(t, "changes", "show", "c").Stdout
	a.Run(t, "secret", "set", "kept", "--from", "file:"+secret)
	a.Run(t, "key", "create", "ci", "--as", "54321")
	if r := a.TryWith(layersWithHoles, "image", "build", "built", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}

	archive := filepath.Join(t.TempDir(), "host.tar")
	backup := func(to string) []string { return []string{"backup", "--root", a.Root, "-o", "json", to} }
	a.Refused(t, "SBX-110", backup(archive)...)
	user.Refused(t, "SBX-109", backup("-")...)
	if _, err := os.Stat(archive); err == nil {
		t.Error("a refused backup left a file")
	}
	a.Run(t, "rm", "--all", "--force")
	a.Stop(t)
	var made struct {
		Parts []struct {
			Part  string
			Items int
		}
	}
	a.Run(t, backup(archive)...).JSON(t, &made)
	items := map[string]int{}
	for _, p := range made.Parts {
		items[p.Part] = p.Items
	}
	for part, n := range map[string]int{"volumes": 2, "snapshots": 2, "changesets": 1, "secrets.json": 1, "keys.json": 1, "audit": 1, "containerd": 1} {
		if items[part] != n {
			t.Errorf("%d items of %s, want %d", items[part], part, n)
		}
	}
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(canary)) || !bytes.Contains(text, []byte(secret)) {
		t.Error("it has the value of a secret, or lacks where it comes from")
	}

	b := harness.New(t)
	b.Config = devProfile
	b.Refused(t, "SBX-120", "restore", "--root", b.Root, "-o", "json", archive) // images are of the root's path
	b.Root = a.Root
	if err := os.Rename(a.Root, a.Root+".away"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(a.Root + ".away"); err != nil {
			t.Error(err)
		}
	})
	restore := func(from string, more ...string) []string {
		return append(append([]string{"restore", "--root", b.Root, "-o", "json"}, more...), from)
	}
	changedByte := slices.Clone(text)
	changedByte[len(text)/2] ^= 1
	for name, bad := range map[string][]byte{"cut short": text[:len(text)/2], "changed": changedByte} {
		file := filepath.Join(t.TempDir(), "bad.tar")
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		b.Refused(t, "SBX-120", restore(file)...)
		if left := filesBelow(t, b.Root); left != "lock" {
			t.Errorf("one that is %s left %s", name, left)
		}
	}
	b.User(t, ann).Refused(t, "SBX-109", restore(archive)...)
	b.Run(t, restore(archive)...)
	b.Launch(t)
	t.Cleanup(func() {
		b.Stop(t)
		b.CheckNothingLeft(t)
	})
	b.Refused(t, "SBX-110", restore(archive)...)

	user = b.User(t, ann)
	if got := user.Run(t, "run", "--mount", plain, "--", "sh", "-c", lookAtOddFiles).Stdout; got != want {
		t.Errorf("in the restored volume:\n%s\nwant:\n%s", got, want)
	}
	for _, use := range []struct {
		want string
		got  harness.Result
	}{
		{"sized\n", user.Run(t, "run", "--mount", sized, "--", "sh", "-c", "cat /v/f && touch /v/more")},
		{"new\n", b.Run(t, "run", "--image", "built", "--", "sh", "-c", "ls /d && ! ls -d /gone 2>/dev/null")},
		{"root\n", b.Run(t, "run", "--from", "whole", "--", "cat", "/root-file")},
		{"dep\n", b.Run(t, "run", "--mount", "type=snapshot,src=deps,dst=/srv/deps", "--", "cat", "/srv/deps/f")},
		{changed, b.Run(t, "changes", "show", "c")},
	} {
		if use.got.Stdout != use.want {
			t.Errorf("%q prints %q, want %q", use.got.Args, use.got.Stdout, use.want)
		}
	}
	if out := b.Run(t, "secret", "ls").Stdout; !strings.Contains(out, "kept") || !strings.Contains(out, "readable") {
		t.Errorf("secrets: %s", out)
	}
	if out := b.Run(t, "key", "ls").Stdout; !strings.Contains(out, "ci") {
		t.Errorf("keys: %s", out)
	}
	logs, _ := filepath.Glob(filepath.Join(b.Root, "audit.restored-*")) // the pattern is well-formed
	if len(logs) != 1 {
		t.Fatalf("restored logs: %q", logs)
	}
	if out := b.Run(t, "audit", "verify", "--dir", logs[0]).Stdout; !strings.HasPrefix(out, "whole: ") {
		t.Errorf("verify: %s", out)
	}
	b.Run(t, "apply", "c")
	hostHas(t, dir, map[string]string{"new": "changed\n"})

	b.Stop(t)
	before := filesBelow(t, b.Root)
	if f := b.Refused(t, "SBX-121", restore(archive)...); !strings.Contains(f.Error.Message, "54321+data") {
		t.Errorf("%+v", f)
	}
	if after := filesBelow(t, b.Root); after != before {
		t.Errorf("a refused restore changed %s to %s", before, after)
	}
	b.Run(t, "restore", "--root", b.Root, "--skip-existing", archive) // the applied changeset again
	b.Launch(t)
	if out := b.Run(t, "changes", "show", "c").Stdout; out == "" {
		t.Error("what was not there was not restored")
	}
}

// TestBackupBesideSandboxes: what sandboxes that live on do not keep mounted can be backed up, and
// all of it when they have ended.
func TestBackupBesideSandboxes(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "# the default of keep_on_exit\n")
	d.Run(t, "create", "--name", "s", "--mount", "type=volume,src=plain,dst=/v")
	d.Run(t, "exec", "s", "--", "sh", "-c", "echo text >/v/f")
	d.Stop(t)
	dir := t.TempDir()
	backup := func(name string) []string {
		return []string{"backup", "--root", d.Root, "-o", "json", filepath.Join(dir, name)}
	}
	d.Run(t, backup("beside")...)
	d.Launch(t)
	if got := d.Run(t, "exec", "s", "--", "cat", "/v/f").Stdout; got != "text\n" {
		t.Errorf("after the backup the sandbox reads %q", got)
	}
	d.Run(t, "volume", "create", "--size", "32M", "sized")
	d.Stop(t)
	f := d.Refused(t, "SBX-232", backup("mounted")...)
	if !strings.Contains(f.Error.Remedy, "--stop-all") {
		t.Errorf("%+v", f)
	}
	if got := filesBelow(t, dir); got != "beside" {
		t.Errorf("a refused backup left %s", got)
	}
	if out, err := stopAll(t, d); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.Run(t, backup("whole")...)
}

// filesBelow are the names of what is in a directory and one below.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-mindepth", "1", "-maxdepth", "2", "-printf", "%P ").Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	slices.Sort(list)
	return strings.Join(list, " ")
}
