package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestSnapshotDiff: what a snapshot has other than an earlier one is told, of roots over an image and of
// /workspace, and nothing that is the same. It is the same as what the sandbox sees.
//
//caisson:kernel
func TestSnapshotDiff(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "--rootfs", "rw", "--disk", "64M")
	inside := func(script string) {
		t.Helper()
		d.Run(t, "exec", "a", "--", "sh", "-ec", script)
	}
	inside("mkdir -p /opt/tree/deep /opt/gone/in keep && echo one >/opt/tree/f && echo two >/opt/tree/deep/g && ln -s f /opt/tree/l && echo 1 >/opt/gone/in/f && echo same >keep/same && mkfifo pipe")
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	d.Run(t, "snapshot", "create", "a", "--name", "again")
	if r := d.Run(t, "snapshot", "diff", "one", "again"); r.Stdout+r.Stderr != "" {
		t.Errorf("two that are the same: %q, %q", r.Stdout, r.Stderr)
	}
	inside(`rm -r /opt/gone && mv /opt/tree/deep /opt/tree/moved && echo new >/opt/tree/f && ln -sf g /opt/tree/l && chmod 4750 keep && cat keep/same >keep/x && mv keep/x keep/same
		rm /bin/ls && mv /etc /old && mkdir /etc && echo root:x:0:0::/:/bin/sh >/etc/passwd && rm pipe && echo f >pipe && ln keep/same keep/other && : >"odd$(printf '\377\033')" && chown 7:8 /opt`)
	d.Run(t, "snapshot", "create", "a", "--name", "two")
	got := d.Run(t, "snapshot", "diff", "one", "two", "opt", "/workspace").Stdout
	want := `M opt/
D opt/gone/
D opt/tree/deep/
M opt/tree/f
M opt/tree/l -> g
A opt/tree/moved/
A opt/tree/moved/g
M workspace/keep/ (mode 755 to 4750)
A workspace/keep/other
A workspace/odd` + "\ufffd" + `\x1b
M workspace/pipe (file, was fifo)
`
	if got != want {
		t.Errorf("changes:\n%s\nwant:\n%s", got, want)
	}
	// A directory of the image was renamed, and another one hides its place.
	image := d.Run(t, "run", "--profile", "dev", "--user", "root", "--rootfs", "rw", "--", "sh", "-c", "cd /etc && find . -mindepth 1 | sort").Stdout
	var expect []string
	for name := range strings.SplitSeq(strings.TrimSpace(image), "\n") {
		expect = append(expect, "old/"+strings.TrimPrefix(name, "./"))
	}
	names := d.Run(t, "snapshot", "diff", "--name-only", "one", "two", "bin/ls", "etc", "old").Stdout
	if !strings.HasPrefix(names, "bin/ls\n") || !strings.Contains(names, "\nold\n") {
		t.Errorf("names:\n%s", names)
	}
	for _, name := range expect {
		if !strings.Contains(names, name+"\n") && !isPrivate(name) {
			t.Errorf("%s is not told:\n%s", name, names)
		}
	}
	back := d.Run(t, "snapshot", "diff", "--stat", "two", "one", "opt/tree").Stdout
	if want := "A opt/tree/deep/\nA opt/tree/deep/g | 0 to 4 bytes\nM opt/tree/f | 4 to 4 bytes\nM opt/tree/l -> f\nD opt/tree/moved/\n2 added, 2 modified, 1 deleted, 0 renamed\n"; back != want {
		t.Errorf("the other way round:\n%s", back)
	}
	// A sandbox that began with it changed nothing, whatever ids it has.
	d.Run(t, "create", "--name", "b", "--from", "two")
	d.Run(t, "snapshot", "create", "b", "--name", "three")
	if got := d.Run(t, "snapshot", "diff", "two", "three").Stdout; got != "" {
		t.Errorf("of a sandbox from it: %s", got)
	}
	d.Run(t, "rm", "--force", "a", "b")
	d.Run(t, "snapshot", "rm", "one", "again", "two", "three")
	wantNoDisks(t, d)
}

// isPrivate reports whether a file is the sandbox's own, which no snapshot has.
func isPrivate(name string) bool {
	return name == "old/hosts" || name == "old/hostname" || name == "old/resolv.conf"
}

// TestSnapshotDiffOfPath: snapshots of one directory are compared by content, whoever made them.
func TestSnapshotDiffOfPath(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "--rootfs", "rw")
	d.Run(t, "exec", "a", "--", "sh", "-c", growTree, "-", "/opt/deps")
	d.Run(t, "snapshot", "create", "a", "--name", "one", "--path", "/opt/deps")
	d.Run(t, "snapshot", "create", "a", "--name", "again", "--path", "/opt/deps")
	d.Run(t, "exec", "a", "--", "sh", "-c", "cd /opt/deps && echo two >sub/f && mkdir ../other")
	d.Run(t, "snapshot", "create", "a", "--name", "two", "--path", "/opt/deps")
	d.Run(t, "snapshot", "create", "a", "--name", "other", "--path", "/opt/other")
	d.Run(t, "snapshot", "create", "a", "--name", "whole")
	d.Run(t, "create", "--name", "ro", "--disk", "32M")
	d.Run(t, "snapshot", "create", "ro", "--name", "ro")
	if got := d.Run(t, "snapshot", "diff", "one", "again").Stdout; got != "" {
		t.Errorf("two that are the same: %s", got)
	}
	const both = "M g (mode 4640 to 640)\nM sub/f (mode 4640 to 640)\n" // names of one file, which lost its set-id bit
	for _, args := range [][]string{nil, {"."}, {"/opt/deps"}, {"g", "/opt/deps/sub"}} {
		if got := d.Run(t, append([]string{"snapshot", "diff", "one", "two"}, args...)...).Stdout; got != both {
			t.Errorf("at %q: %s", args, got)
		}
	}
	if got := d.Run(t, "snapshot", "diff", "--json", "one", "two", "g").Stdout; !strings.Contains(got, `"kind": "modified"`) || !strings.Contains(got, `"path": "g"`) {
		t.Errorf("as JSON: %s", got)
	}
	for _, tt := range []struct{ code, want, args string }{
		{"SBX-235", `no snapshot "absent"`, "one absent"},
		{"SBX-246", `"/opt/deps", and snapshot "other" has "/opt/other"`, "one other"},
		{"SBX-246", `snapshot "whole" the disk of a sandbox`, "one whole"},
		{"SBX-246", `snapshot "one" the directory "/opt/deps" alone`, "whole one"},
		{"SBX-246", "root file system", "whole ro"},
		{"SBX-101", "give one below /opt/deps", "one two ../x"},
		{"SBX-101", "give one below /opt/deps", "one two /opt"},
	} {
		f := d.Refused(t, tt.code, append(append([]string{"snapshot", "diff"}, strings.Fields(tt.args)...), "-o", "json")...)
		if !strings.Contains(f.Error.Message, tt.want) || f.Error.Remedy == "" {
			t.Errorf("%s: %s; %s", tt.args, f.Error.Message, f.Error.Remedy)
		}
	}
	user := d.User(t, ann)
	user.Refused(t, "SBX-235", "snapshot", "diff", "0+one", "0+two", "-o", "json")
	d.Run(t, "rm", "--force", "a", "ro")
	d.Run(t, "snapshot", "rm", "one", "again", "two", "other", "whole", "ro")
	wantNoDisks(t, d)
}

// TestSnapshotDiffOfManyFiles: a hundred thousand files take seconds.
func TestSnapshotDiffOfManyFiles(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	d := harness.StartWith(t, "sandboxes: {disk: 1G}\n")
	d.Run(t, "create", "--name", "a", "--disk", "1G", "--disk-inodes", "110000")
	d.Run(t, "exec", "a", "--", "sh", "-ec", "for d in $(seq 100); do mkdir $d; for f in $(seq 1000); do echo $f >$d/$f; done; done; find . -type f | wc -l >/tmp/n; grep -qx 100000 /tmp/n")
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	d.Run(t, "exec", "a", "--", "sh", "-ec", "echo x >50/7; rm -r 60")
	d.Run(t, "snapshot", "create", "a", "--name", "two")
	for range 2 {
		began := time.Now()
		got := d.Run(t, "snapshot", "diff", "one", "two").Stdout
		took := time.Since(began)
		if want := "M workspace/50/7\nD workspace/60/\n"; got != want {
			t.Errorf("changes: %s", got)
		}
		fmt.Printf("100,000 files: %s\n", took)
		if took > time.Minute {
			t.Errorf("it took %s", took)
		}
	}
	d.Run(t, "rm", "--force", "a")
	d.Run(t, "snapshot", "rm", "one", "two")
	wantNoDisks(t, d)
}
