package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// names lists the images of a daemon.
func names(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	var list []struct{ Name string }
	d.Run(t, "image", "ls", "-o", "json").JSON(t, &list)
	var all []string
	for _, i := range list {
		all = append(all, i.Name)
	}
	return strings.Join(all, " ")
}

// TestImageTagAndSave: a second name is the same image, and a saved one comes back.
func TestImageTagAndSave(t *testing.T) {
	need.Tools(t, "skopeo")
	d := harness.StartWith(t, "")
	d.Run(t, "image", "import", "--name", "one", writeTar(t, ociLayout(t, "saved")))
	d.Run(t, "image", "tag", "one", "example.com/two:2")
	d.Refused(t, "SBX-201", "image", "tag", "--json", "absent", "three")
	d.Refused(t, "SBX-101", "image", "tag", "--json", "one", "Not A Name")
	file := filepath.Join(t.TempDir(), "saved.tar")
	d.Run(t, "image", "save", "-f", file, "example.com/two:2")
	for _, format := range []string{"docker-archive:", "oci-archive:"} { // as docker and podman read it
		copied := filepath.Join(t.TempDir(), "copy")
		if out, err := exec.Command("skopeo", "copy", format+file, "dir:"+copied).CombinedOutput(); err != nil {
			t.Errorf("skopeo reads no %s: %v: %s", format, err, out)
		}
	}
	var usage struct {
		Images []struct {
			Image struct {
				Name   string
				Stored int64 `json:"size_bytes"`
			}
			Shared   int64 `json:"shared_bytes"`
			Unpacked int64 `json:"unpacked_bytes"`
		}
	}
	d.Run(t, "image", "du", "-o", "json").JSON(t, &usage)
	for _, u := range usage.Images {
		if shared := u.Image.Name != "base"; u.Image.Stored < 1<<20 || u.Unpacked < 1<<20 || (u.Shared > 0) != shared {
			t.Errorf("du says %+v", u)
		}
	}
	short := filepath.Join(t.TempDir(), "short.tar")
	d.Run(t, "image", "save", "-f", short, "one")
	d.Run(t, "image", "rm", "one")
	d.Run(t, "image", "import", short)
	if out := d.Run(t, "run", "--image", "one", "--", "cat", "/mark").Stdout; out != "saved" {
		t.Errorf("a name without a tag prints %q after save and import", out)
	}
	d.Run(t, "image", "rm", "one")
	if out := d.Run(t, "run", "--image", "example.com/two:2", "--", "cat", "/mark").Stdout; out != "saved" {
		t.Errorf("the second name prints %q", out)
	}
	d.Run(t, "image", "rm", "example.com/two:2")
	d.Run(t, "image", "import", file)
	if out := d.Run(t, "run", "--image", "example.com/two:2", "--", "cat", "/mark").Stdout; out != "saved" {
		t.Errorf("after save and import it prints %q", out)
	}
	if r := d.Try("image", "save", "-f", file, "absent"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-201") {
		t.Errorf("save of an absent image: %+v", r)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("a save that failed replaced the file: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBaseComesBack: after its removal the next use gets the embedded image. This also holds
// where another image had replaced it.
func TestBaseComesBack(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "image", "rm", "base")
	if out := d.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
		t.Errorf("after its removal: %q", out)
	}
	d.Run(t, "image", "import", "--name", "base", writeTar(t, ociLayout(t, "mine")))
	if out := d.Run(t, "run", "--", "cat", "/mark").Stdout; out != "mine" {
		t.Errorf("replaced: %q", out)
	}
	d.Run(t, "image", "rm", "base")
	d.Run(t, "run", "--", "true")
	if r := d.Try("run", "--", "cat", "/mark"); r.Code == 0 {
		t.Errorf("the embedded image has the mark: %+v", r)
	}
}

// TestImagePrune: what something needs stays.
func TestImagePrune(t *testing.T) {
	d := harness.StartWith(t, "profiles: {app: {image: profiled}}\nimages: {languages: {cobol: spoken}}\n")
	layout := writeTar(t, ociLayout(t, "x"))
	for _, name := range []string{"free", "profiled", "spoken", "used"} {
		d.Run(t, "image", "import", "--name", name, layout)
	}
	id := strings.TrimSpace(d.Run(t, "create", "--image", "used").Stdout)
	var pruned struct {
		Images []struct{ Name string }
	}
	d.Run(t, "image", "prune", "--dry-run", "--json", "--filter", "unused").JSON(t, &pruned)
	if len(pruned.Images) != 1 || pruned.Images[0].Name != "free" {
		t.Errorf("it would remove %+v", pruned)
	}
	d.Run(t, "image", "prune", "--filter", "until=1h,unused")
	if all := names(t, d); all != "base free profiled spoken used" {
		t.Errorf("there are %s", all)
	}
	d.Run(t, "image", "prune", "--filter", "unused")
	if all := names(t, d); all != "base profiled spoken used" {
		t.Errorf("there are %s", all)
	}
	d.Run(t, "rm", "--force", id)
	d.Run(t, "image", "prune", "--filter", "unused")
	if all := names(t, d); all != "base profiled spoken" {
		t.Errorf("there are %s", all)
	}
	for _, filter := range []string{"", "all", "until=soon", "until=-1h"} {
		d.Refused(t, "SBX-801", "image", "prune", "--json", "--filter", filter)
	}
	d.Refused(t, "SBX-801", "image", "prune", "--json")
}

// TestLanguage: a workspace's files pick the image where nobody names one.
func TestLanguage(t *testing.T) {
	d := harness.StartWith(t, "images: {languages: {python: snakes, go: absent}}\nprofiles: {own: {image: other}}\n")
	d.Run(t, "image", "import", "--name", "snakes", writeTar(t, ociLayout(t, "snakes")))
	d.Run(t, "image", "import", "--name", "other", writeTar(t, ociLayout(t, "other")))
	python, rust, plain := t.TempDir(), t.TempDir(), t.TempDir()
	for _, file := range []string{filepath.Join(python, "pyproject.toml"), filepath.Join(rust, "Cargo.toml")} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mark := []string{"--", "cat", "/mark"}
	run := func(args ...string) harness.Result {
		return d.Try(append(append([]string{"run"}, args...), mark...)...)
	}
	r := run("--workspace", python)
	if r.Stdout != "snakes" || !strings.Contains(r.Stderr, `"snakes" was picked for the language "python"`) || !strings.Contains(r.Stderr, "pyproject.toml") {
		t.Errorf("python: %+v", r)
	}
	if r := run("--workspace", python, "--profile", "own"); r.Stdout != "other" || strings.Contains(r.Stderr, "picked") {
		t.Errorf("a profile with an image: %+v", r)
	}
	if r := run("--workspace", python, "--image", "other"); r.Stdout != "other" || strings.Contains(r.Stderr, "picked") {
		t.Errorf("a request with an image: %+v", r)
	}
	for _, dir := range []string{rust, plain} { // base has no such file
		if r := run("--workspace", dir); r.Code == 0 || strings.Contains(r.Stderr, "picked") {
			t.Errorf("%s: %+v", dir, r)
		}
	}
	golang := t.TempDir()
	if err := os.WriteFile(filepath.Join(golang, "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f := d.Refused(t, "SBX-201", "run", "--json", "--workspace", golang, "--", "true"); !strings.Contains(f.Error.Message, "because of go.mod") || !strings.Contains(f.Error.Remedy, "--image base") {
		t.Errorf("a language whose image is absent: %+v", f.Error)
	}
	created := d.Run(t, "create", "--workspace", python)
	if !strings.Contains(created.Stderr, "snakes") {
		t.Errorf("create says %q", created.Stderr)
	}
	d.Run(t, "rm", "--force", strings.TrimSpace(created.Stdout))
}

// TestReplacedImageIsNew: an image has the time at which this content was stored, so a rule
// for old images leaves one alone that was just built under an old name. A sandbox of the
// old content says so when it is ensured.
func TestReplacedImageIsNew(t *testing.T) {
	d := harness.Start(t)
	created := func() time.Time {
		var img struct {
			CreatedAt time.Time `json:"created_at"`
		}
		d.Run(t, "image", "inspect", "-o", "json", "mine").JSONIn(t, "image", &img)
		return img.CreatedAt
	}
	d.Run(t, "image", "import", "--name", "mine", writeTar(t, ociLayout(t, "first")))
	first := created()
	ensure := []string{"create", "--ensure", "--name", "kept", "--image", "mine"}
	if r := d.Run(t, ensure...); r.Stderr != "" {
		t.Errorf("a new sandbox: %q", r.Stderr)
	}
	if r := d.Run(t, ensure...); r.Stderr != "" {
		t.Errorf("of the same image: %q", r.Stderr)
	}
	time.Sleep(2 * time.Second) // the age that the filter below calls old
	began := time.Now()
	d.Run(t, "image", "import", "--name", "mine", writeTar(t, ociLayout(t, "second")))
	if now := created(); first.After(began) || now.Before(began) {
		t.Errorf("created at %v, then at %v; replaced after %v", first, now, began)
	}
	if r := d.Run(t, ensure...); !strings.Contains(r.Stderr, "the image mine was replaced since the sandbox was made") || !strings.Contains(r.Stderr, "--replace") {
		t.Errorf("of a replaced image: %q", r.Stderr)
	}
	d.Run(t, "rm", "--force", "kept")
	d.Run(t, "image", "prune", "--filter", "until=2s")
	if all := names(t, d); all != "base mine" {
		t.Errorf("after a prune of old images there are %s", all)
	}
}
