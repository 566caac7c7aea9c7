package integration

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// exported is the archive of a snapshot of a sandbox with changes of all kinds.
func exported(t *testing.T, d *harness.Daemon) []byte {
	t.Helper()
	d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root", "-e", "WHO=a", "-l", "team=blue", "--allow", "a.example")
	const change = "mkdir /usr/new && echo installed >/usr/new/f && ln /usr/new/f /usr/new/g && chown -R 1000:1000 /usr/new && chmod 750 /usr/new && rm /etc/group" +
		" && rm -r /home && mkdir /home && ln -s /usr/new/f /link && echo w >/workspace/w && ln /workspace/w /workspace/v && mkfifo /workspace/pipe && chown 7:8 /workspace/w && chmod 2755 /usr/new/f"
	d.Run(t, "exec", "a", "--", "sh", "-c", change)
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	return []byte(d.Run(t, "snapshot", "export", "one", "-").Stdout)
}

// TestSnapshotArchive: what one daemon exports is a snapshot in another one, with the files, owners,
// modes, links and removed files, the environment, labels, profile and policy.
func TestSnapshotArchive(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	archive := exported(t, d)
	d.Run(t, "rm", "--force", "a")
	file := filepath.Join(t.TempDir(), "one.tar")
	d.Run(t, "snapshot", "export", "one", file)
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, archive) {
		t.Errorf("exported again it is another archive: %v", err)
	}
	d.Run(t, "snapshot", "rm", "one")
	wantNoDisks(t, d)

	o := harness.StartWith(t, devProfile)
	if got := o.Run(t, "snapshot", "import", file).Stdout; got != "one\n" {
		t.Errorf("printed %q", got)
	}
	if r := o.TryWith(string(archive), "snapshot", "import", "--name", "two", "-"); r.Stdout != "two\n" {
		t.Errorf("from a pipe: %+v", r)
	}
	if out := o.Run(t, "events", "--json", "--filter", "type=snapshot.created").Stdout; strings.Count(out, "snapshot.created") != 2 {
		t.Errorf("events: %s", out)
	}
	const look = "cat /link /workspace/v; stat -c '%u:%g %a %h' /usr/new /usr/new/f /workspace/w; ls -d /etc/group /workspace/pipe 2>/dev/null; ls -A /home; echo $WHO; touch /usr/new/h && echo written"
	const want = "installed\nw\n1000:1000 750 2\n1000:1000 755 2\n7:8 644 2\na\nwritten\n"
	o.Run(t, "create", "--name", "b", "--from", "one")
	if got := o.Run(t, "exec", "b", "--", "sh", "-c", look).Stdout; got != want {
		t.Errorf("in a sandbox from it:\n%s\nwant:\n%s", got, want)
	}
	for id := range strings.FieldsSeq(o.Run(t, "fork", "-n", "2", "b").Stdout) {
		if got := o.Run(t, "exec", id, "--", "cat", "/usr/new/g").Stdout; got != "installed\n" {
			t.Errorf("in a fork: %q", got)
		}
		o.Run(t, "rm", "--force", id)
	}
	o.Run(t, "snapshot", "create", "b", "--name", "three")
	if r := o.Try("snapshot", "export", "three", filepath.Join(t.TempDir(), "three.tar")); r.Code != 0 {
		t.Errorf("export of the second generation: %s", r.Stderr)
	}
	o.Run(t, "rm", "--force", "b")
	wantSettings(t, o)
	o.Run(t, "snapshot", "rm", "one", "two", "three")
	wantNoDisks(t, o)
}

// changesOf is a script of random changes of all kinds that an archive keeps: files with holes, links,
// several names of a file, owners, modes, times, what is removed from the image and what takes its place.
func changesOf(r *rand.Rand) string {
	var script strings.Builder
	dirs, files := []string{"/opt/t", "/var/lib", "/workspace"}, []string{}
	add := func(format string, args ...any) { fmt.Fprintf(&script, format+"\n", args...) }
	add("set -e; mkdir -p /opt/t /var/lib")
	for i := range 20 + r.IntN(40) {
		at := dirs[r.IntN(len(dirs))] + fmt.Sprintf("/%d é %s", i, strings.Repeat("n", r.IntN(60)))
		mode := r.IntN(0o1000)
		switch kind := r.IntN(8); {
		case kind == 0:
			mode |= 0o1000
			add("mkdir %q", at)
			dirs = append(dirs, at)
		case kind == 1:
			add("ln -s ../%d %q && chown -h %d:%d %q", i, at, r.IntN(3000), r.IntN(65536), at)
			continue
		case kind == 2 && len(files) > 0:
			if to := files[r.IntN(len(files))]; to[:4] == at[:4] { // in one directory that is kept
				add("ln %q %q", to, at)
			}
			continue
		case kind == 3:
			add("printf some | dd of=%q bs=1 seek=%d 2>/dev/null", at, r.IntN(1<<20))
			files = append(files, at)
		default:
			add("head -c %d /dev/urandom >%q", r.IntN(100<<10), at)
			files = append(files, at)
		}
		add("chown %d:%d %q; chmod %o %q; touch -d @%d %q", r.IntN(3), r.IntN(65536), at, mode, at, r.IntN(2e9), at)
	}
	for _, gone := range []string{"/etc/group", "/home", "/srv", "/usr/share"} {
		if r.IntN(2) == 0 {
			add("rm -rf %s", gone)
		}
		if r.IntN(2) == 0 {
			add("rm -rf %s; mkdir -p %s; touch %s/instead", gone, gone, gone)
		}
	}
	return script.String()
}

// TestSnapshotArchiveKeeps: whatever was done to a sandbox, one from its snapshot has the same tree after
// an export and an import.
func TestSnapshotArchiveKeeps(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	const look = `find $0 | sort | while IFS= read -r f; do stat -c '%n %F %u:%g %a %Y %s' "$f" | sed 's/ [0-9]* [0-9]*$//;' ; ` +
		`[ -L "$f" ] && readlink "$f"; [ -f "$f" ] && ! [ -L "$f" ] && md5sum <"$f" && stat -c '%h %Y' "$f"; done; true`
	for _, seed := range need.Turn(t, []uint64{0, 1, 2, 3, 4, 5, 6, 7}) {
		script := changesOf(rand.New(rand.NewPCG(seed, 1)))
		d.Run(t, "create", "--name", "a", "--profile", "dev", "--user", "root")
		if r := d.TryWith(script, "exec", "-i", "a", "--", "sh"); r.Code != 0 {
			t.Fatalf("seed %d: %+v\n%s", seed, r, script)
		}
		for place, flags := range map[string][]string{"/etc/group /home /opt /srv /usr/share /var/lib /workspace": nil, "/opt/t": {"--path", "/opt/t"}} {
			all := []string{"exec", "a", "--", "sh", "-c", strings.Replace(look, "$0", place+" 2>/dev/null", 1)}
			want := d.Run(t, all...).Stdout
			d.Run(t, append([]string{"snapshot", "create", "a", "--name", "s"}, flags...)...)
			file := filepath.Join(t.TempDir(), "s.tar")
			d.Run(t, "snapshot", "export", "s", file)
			d.Run(t, "snapshot", "import", "--name", "again", file)
			begin := []string{"create", "--name", "b", "--user", "root", "--profile", "dev", "--from", "again"}
			if flags != nil {
				begin = []string{"create", "--name", "b", "--user", "root", "--profile", "dev", "--mount", "type=snapshot,src=again,dst=/opt/t"}
			}
			d.Run(t, begin...)
			all[1] = "b"
			if got := d.Run(t, all...).Stdout; got != want || strings.Count(want, "\n") < 5 {
				t.Errorf("seed %d, %s:\n%s\nwant:\n%s\nafter:\n%s", seed, place, got, want, script)
			}
			d.Run(t, "rm", "--force", "b")
			d.Run(t, "snapshot", "rm", "s", "again")
		}
		d.Run(t, "rm", "--force", "a")
	}
	wantNoDisks(t, d)
}

// TestSnapshotArchiveOfDisk: a snapshot of a sandbox with a root that cannot be written has its
// /workspace.
func TestSnapshotArchiveOfDisk(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	d.Run(t, "create", "--name", "a", "--disk", "32M")
	d.Run(t, "exec", "a", "--", "sh", "-c", "mkdir sub && echo w >sub/w")
	d.Run(t, "snapshot", "create", "a", "--name", "one")
	archive := d.Run(t, "snapshot", "export", "one", "-").Stdout
	if r := d.TryWith(archive, "snapshot", "import", "--name", "two", "-"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if got := d.Run(t, "run", "--from", "two", "--", "cat", "sub/w").Stdout; got != "w\n" {
		t.Errorf("in a sandbox from it: %q", got)
	}
	d.Run(t, "exec", "a", "--", "touch", "sub/.wh.w")
	d.Run(t, "snapshot", "create", "a", "--name", "marked")
	if r := d.Try("snapshot", "export", "marked", "-"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-249") || !strings.Contains(r.Stderr, "/workspace/sub/.wh.w") {
		t.Errorf("a name that is a mark: %+v", r)
	}
	d.Run(t, "rm", "--force", "a")
	d.Run(t, "snapshot", "rm", "one", "two", "marked")
	wantNoDisks(t, d)
}

// TestSnapshotArchiveRefused: what is no whole archive, of another version, of an image that is absent
// or forbidden is refused, and leaves nothing.
func TestSnapshotArchiveRefused(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, devProfile)
	archive := exported(t, d)
	d.Run(t, "rm", "--force", "a")
	try := func(sent []byte, args ...string) harness.Result {
		return d.TryWith(string(sent), append([]string{"snapshot", "import", "-o", "json"}, args...)...)
	}
	try(archive, "-").Refused(t, "SBX-106")
	try(archive, "--name", "one", "-").Refused(t, "SBX-106")
	try(archive, "--name", "a/b", "-").Refused(t, "SBX-101")
	for _, at := range []int{1, 511, 513, len(archive) / 3, len(archive) / 2, len(archive) - 1025, len(archive) - 1024 - 512} {
		try(archive[:at], "--name", "cut", "-").Refused(t, "SBX-202")
	}
	for name, tt := range map[string]struct {
		code   string
		change func(*parts)
	}{
		"unchanged":           {"", func(*parts) {}},
		"a newer version":     {"SBX-248", func(p *parts) { p.label("caisson.snapshot.version", "2") }},
		"no version":          {"SBX-247", func(p *parts) { p.label("caisson.snapshot.version", "") }},
		"no metadata":         {"SBX-247", func(p *parts) { p.label("caisson.snapshot", "{") }},
		"another image":       {"SBX-201", func(p *parts) { p.replace(`"image_digest":"sha256:`, `"image_digest":"sha256:00`) }},
		"a disk of no size":   {"SBX-102", func(p *parts) { p.replace(`"Bytes":67108864`, `"Bytes":1`) }},
		"a path of no form":   {"SBX-247", func(p *parts) { p.replace(`"image_digest":`, `"path":"../etc","image_digest":`) }},
		"a path and a root":   {"SBX-247", func(p *parts) { p.replace(`"image_digest":`, `"path":"/etc","image_digest":`) }},
		"out of the tree":     {"SBX-203", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeReg, Name: "../../out"}) }},
		"through a link":      {"SBX-203", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeReg, Name: "link/passwd"}) }},
		"a link to the host":  {"SBX-203", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "/etc/passwd"}) }},
		"a removed workspace": {"SBX-203", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeReg, Name: "workspace/.wh.w"}) }},
		"an owner of another": {"SBX-203", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeReg, Name: "x", Uid: 70000}) }},
		"a device":            {"", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeBlock, Name: "x", Devmajor: 8}) }},
		"more than the disk":  {"SBX-234", func(p *parts) { p.add(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 80 << 20}) }},
	} {
		p := read(t, archive)
		tt.change(p)
		r := try(p.write(t), "--name", "changed", "-")
		switch {
		case tt.code == "" && r.Code != 0:
			t.Errorf("%s: %s%s", name, r.Stdout, r.Stderr)
		case tt.code == "":
			d.Run(t, "run", "--from", "changed", "--", "sh", "-c", "test ! -e /x")
			d.Run(t, "snapshot", "rm", "changed")
		case r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, tt.code):
			t.Errorf("%s: want %s: %d %s%s", name, tt.code, r.Code, r.Stdout, r.Stderr)
		}
	}
	if r := d.TryWith(string(archive), "image", "import", "--name", "changes", "-"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-202") || !strings.Contains(r.Stderr, "caisson snapshot import") {
		t.Errorf("imported as an image: %+v", r)
	}
	ordinary, err := os.ReadFile(writeTar(t, ociLayout(t, "ordinary")))
	if err != nil {
		t.Fatal(err)
	}
	if r := try(ordinary, "-"); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "SBX-247") || !strings.Contains(r.Stdout+r.Stderr, "caisson image import") {
		t.Errorf("an image, imported as a snapshot: %+v", r)
	}
	if r := d.User(t, ann).Try("snapshot", "export", "0+one", "-"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-235") || r.Stdout != "" {
		t.Errorf("to another user: %+v", r)
	}
	d.Run(t, "snapshot", "rm", "one")
	if left, err := os.ReadDir(filepath.Join(d.Root, "snapshots")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	wantNoDisks(t, d)
}

// parts are the layer and the configuration of an archive.
type parts struct{ layer, config []byte }

func read(t *testing.T, archive []byte) *parts {
	t.Helper()
	p := &parts{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return p
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(h.Name, "blobs/") && bytes.Contains(data, []byte("caisson.snapshot\":")):
			p.config = data
		case strings.HasPrefix(h.Name, "blobs/") && !bytes.HasPrefix(data, []byte("{")):
			p.layer = data
		}
	}
}

// label changes a label of the configuration.
func (p *parts) label(name, value string) {
	var c map[string]any
	if err := json.Unmarshal(p.config, &c); err != nil {
		panic(err)
	}
	c["config"].(map[string]any)["Labels"].(map[string]any)[name] = value
	p.config, _ = json.Marshal(c)
}

// replace changes what the label of the snapshot says.
func (p *parts) replace(was, is string) {
	quote := func(s string) string { return strings.ReplaceAll(s, `"`, `\"`) }
	changed := strings.Replace(string(p.config), quote(was), quote(is), 1)
	if changed == string(p.config) {
		panic("no " + was + " in " + changed)
	}
	p.config = []byte(changed)
}

// add adds a file of bytes that are not zero to the layer.
func (p *parts) add(h tar.Header) {
	var more bytes.Buffer
	w := tar.NewWriter(&more)
	if err := w.WriteHeader(&h); err != nil {
		panic(err)
	}
	if h.Size > 0 {
		w.Write(bytes.Repeat([]byte("x"), int(h.Size))) // the buffer takes it
	}
	w.Flush()
	p.layer = append(more.Bytes(), p.layer...)
	if h.Name == "link/passwd" || h.Name == "workspace/.wh.w" { // after what it needs
		end := len(p.layer) - more.Len() - 1024
		was := p.layer[more.Len():][:end]
		p.layer = append(append(bytes.Clone(was), more.Bytes()...), make([]byte, 1024)...)
	}
}

func (p *parts) write(t *testing.T) []byte {
	t.Helper()
	digest := func(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
	var config map[string]any
	if err := json.Unmarshal(p.config, &config); err != nil {
		t.Fatal(err)
	}
	config["rootfs"].(map[string]any)["diff_ids"] = []string{"sha256:" + digest(p.layer)}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":%d}]}`, digest(data), len(data), digest(p.layer), len(p.layer))
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d}]}`, digest([]byte(manifest)), len(manifest))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", []byte(index)}, {"blobs/sha256/" + digest([]byte(manifest)), []byte(manifest)},
		{"blobs/sha256/" + digest(data), data}, {"blobs/sha256/" + digest(p.layer), p.layer}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
