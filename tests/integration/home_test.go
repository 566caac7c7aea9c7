package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// homeImage imports an image with the users node, whose home is below /home, and db, whose
// home is elsewhere. Files of both are in the image.
func homeImage(t *testing.T, d *harness.Daemon) {
	t.Helper()
	dir := writeDir(t, append(rootFiles(t, "home"),
		file{name: "bin/ls", link: "busybox"}, file{name: "bin/mv", link: "busybox"}, file{name: "bin/touch", link: "busybox"},
		file{name: "bin/dd", link: "busybox"}, file{name: "bin/whoami", link: "busybox"}, file{name: "bin/mkdir", link: "busybox"},
		file{name: "home", dir: true, mode: 0o755}, file{name: "home/node", dir: true, mode: 0o700}, file{name: "home/node/.nvm", dir: true, mode: 0o755},
		file{name: "home/node/.nvm/tool", data: []byte("#!/bin/sh\necho tool of the image\n"), mode: 0o755},
		file{name: "home/node/.cache", link: "/etc"},
		file{name: "home/other", dir: true, mode: 0o755},
		file{name: "var", dir: true, mode: 0o755}, file{name: "var/db", dir: true, mode: 0o700}, file{name: "var/db/file", data: []byte("old\n"), mode: 0o600}))
	passwd := "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\ndb:x:70:71::/var/db:/bin/sh\nnone:x:80:80::/nonexistent:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	for id, files := range map[int]string{1000: "home/node home/node/.nvm home/node/.nvm/tool", 70: "var/db var/db/file"} {
		for name := range strings.FieldsSeq(files) {
			if err := os.Chown(filepath.Join(dir, name), id, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.Run(t, "image", "import", dir, "--name", "homely")
}

// TestHomeOfTheImage: the user finds its home with the image's files, and may change them.
// The next sandbox finds the image's again. A user that the image does not know has an
// entry and an empty home.
func TestHomeOfTheImage(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	homeImage(t, d)
	for name, tt := range map[string]struct {
		flags       []string
		script, out string
	}{
		"the default user is the image's": {nil, `whoami; echo $HOME $USER; ~/.nvm/tool; stat -c "%U %a" ~ ~/.nvm`, "node\n/home/node node\ntool of the image\nnode 700\nnode 755\n"},
		"files can be made and changed":   {nil, `cd; echo echo changed >> .nvm/tool; .nvm/tool; mv .nvm n; ls -A; ls n; cd /home; touch x && ls`, "tool of the image\nchanged\n.cache\nn\ntool\nnode\nother\nx\n"},
		"the next one has the image's":    {nil, `ls -A ~; ~/.nvm/tool`, ".cache\n.nvm\ntool of the image\n"},
		"others' homes are not its own":   {nil, `touch /home/other/x 2> /dev/null || echo no; touch /bin/x 2> /dev/null || echo no; touch /var/db/x 2> /dev/null || echo no`, "no\nno\nno\n"},
		"a home elsewhere":                {[]string{"-u", "db"}, `whoami; cd; echo $HOME; cat file; echo new > file; mkdir sub; cat file; ls; stat -c "%U %a" .; touch ../x 2> /dev/null || echo no`, "db\n/var/db\nold\nnew\nfile\nsub\ndb 700\nno\n"},
		"a home that is not there":        {[]string{"-u", "none"}, `whoami; echo $HOME`, "none\n/nonexistent\n"},
		"an unknown user":                 {[]string{"-u", "4321:70"}, `whoami; echo $HOME; touch ~/x; ls ~; id; ls /home/node 2> /dev/null || echo no`, "caisson\n/home/caisson\nx\nuid=4321(caisson) gid=70(caisson)\nno\n"},
	} {
		args := append([]string{"run", "--image", "homely"}, tt.flags...)
		if out := d.Run(t, append(args, "--", "sh", "-c", tt.script)...).Stdout; out != tt.out {
			t.Errorf("%s: %q, want %q", name, out, tt.out)
		}
	}
	r := d.Try("run", "--image", "homely", "--tmpfs", "1M", "--", "sh", "-c", "dd if=/dev/zero of=/home/node/big bs=1M count=2 2> /dev/null")
	if r.Code != 1 || !strings.Contains(r.Stderr, "no space was left in /home") {
		t.Errorf("a full home: %+v", r)
	}
	d.AwaitNoSandbox(t)
}

// TestMountInHome: a volume or a tmpfs may lie in the home, also where the image has a link,
// and what leads there is the user's.
func TestMountInHome(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	homeImage(t, d)
	const cache, deep = "type=volume,src=cache,dst=/home/node/.cache", "type=tmpfs,dst=/home/node/a/b"
	const script = `cd; echo kept > .cache/f; touch a/x a/b/y; stat -c "%U %a" . a; .nvm/tool; ls -d /etc/f 2> /dev/null || echo "not in /etc"`
	if out := d.Run(t, "run", "--image", "homely", "--mount", cache, "--mount", deep, "--", "sh", "-c", script).Stdout; out != "node 700\nnode 755\ntool of the image\nnot in /etc\n" {
		t.Errorf("%q", out)
	}
	if out := d.Run(t, "run", "--image", "homely", "--mount", "type=volume,src=cache,dst=/home/node", "--", "sh", "-c", "ls ~; touch ~/z").Stdout; out != "f\n" {
		t.Errorf("a volume as home: %q", out)
	}
	const base = "type=volume,src=cache,dst=/home/caisson/.cache/x"
	if out := d.Run(t, "run", "--mount", base, "--", "sh", "-c", "ls ~/.cache/x; touch ~/y ~/.cache/y; stat -c %U ~ ~/.cache").Stdout; out != "f\nz\ncaisson\ncaisson\n" {
		t.Errorf("in an empty home: %q", out)
	}
	if out := d.Run(t, "run", "--image", "homely", "-u", "db", "--mount", "type=tmpfs,dst=/var/db/tmp", "--", "sh", "-c", "touch ~/tmp/x; cat ~/file").Stdout; out != "old\n" {
		t.Errorf("in a home elsewhere: %q", out)
	}
	d.Refused(t, "SBX-104", "run", "--json", "--mount", "type=tmpfs,dst=/home", "--", "true")
}

// TestHomeOutlivesTheDaemon: a home keeps its files, is compared with its declaration, and
// has the size that was asked for out of a pool.
func TestHomeOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {homely: {image: homely}}\n")
	homeImage(t, d)
	d.Stop(t)
	d.Launch(t, "--config", d.Configure(t, "profiles: {homely: {image: homely}}\npools: [{profile: homely, size: 1}]\n"))
	for i, mib := range []int{64, 300} {
		awaitReady(t, d, 1)
		name := fmt.Sprintf("home-%d", i)
		box(t, d, name, "--profile", "homely", "-m", "64M", "--tmpfs", fmt.Sprintf("%dM", mib))
		if p := poolOf(t, d); p.Hits != int64(i+1) {
			t.Errorf("%+v", p)
		}
		if out := d.Run(t, "exec", name, "--", "sh", "-c", "stat -f -c '%b %S' /home; ~/.nvm/tool; echo mine > ~/f").Stdout; out != fmt.Sprintf("%d 4096\ntool of the image\n", mib<<20/4096) {
			t.Errorf("%q", out)
		}
	}
	d.Kill(t)
	d.Launch(t)
	for _, name := range []string{"home-0", "home-1"} {
		if out := d.Run(t, "exec", name, "--", "sh", "-c", "cat ~/f; echo more >> ~/f; cat ~/f").Stdout; out != "mine\nmine\nmore\n" {
			t.Errorf("%q", out)
		}
		inspect(t, d, name)
		d.Run(t, "rm", "--force", name)
	}
}
