package integration

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestDoctorBundle: a report of a defect says what runs, and no name and no value of it. It is
// written without a daemon, too.
func TestDoctorBundle(t *testing.T) {
	d := harness.Start(t)
	dir := workspace(t, 4321, 4321)
	d.Run(t, "create", "--name", "canary-name", "--label", "a=canary-label", "--env", "A=canary-env", "--workspace", dir, "--allow", "canary-host.example")
	d.Run(t, "exec", "canary-name", "--", "echo", "canary-argument")
	d.Try("exec", "canary-name", "--", "wget", "-T1", "-qO-", "http://canary-host.example/canary-path")
	if out := d.Run(t, "events", "--since", "1h", "-o", "json").Stdout; !strings.Contains(out, "canary-name") || !strings.Contains(out, "canary-argument") {
		t.Fatalf("the events have no canary: nothing is shown: %s", out)
	}
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	d.Run(t, "doctor", "--bundle", path)
	files := unbundle(t, path)
	for _, name := range []string{"README", "version.json", "doctor.json", "capabilities.json", "info.json", "sandboxes.json", "images.json", "events.json", "host.txt"} {
		if len(files[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "canary") || strings.Contains(text, filepath.Base(dir)) {
			t.Errorf("%s tells a name or value: %s", name, text)
		}
	}
	if !strings.Contains(files["sandboxes.json"], `"state": "running"`) || !strings.Contains(files["events.json"], "run.caisson.exec.ended") {
		t.Errorf("it does not say what runs: %s%s", files["sandboxes.json"], files["events.json"])
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	d.Refused(t, "SBX-801", "doctor", "--bundle", path, "-o", "json")
	d.Kill(t)
	off := filepath.Join(t.TempDir(), "off.tar.gz")
	if r := d.Try("doctor", "--bundle", off); r.Code != 0 || !strings.Contains(r.Stderr, "without sandboxes.json") {
		t.Errorf("without a daemon: exit %d, %s", r.Code, r.Stderr)
	}
	if files := unbundle(t, off); len(files["doctor.json"]) == 0 || len(files["host.txt"]) == 0 {
		t.Errorf("without a daemon: %v", files)
	}
	d.Launch(t)
}

// unbundle returns the files of a bundle by name.
func unbundle(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "caisson-bundle/")] = string(text)
	}
}
