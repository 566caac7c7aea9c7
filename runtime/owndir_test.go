package runtime

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputThatIsALinkIsLeft: a removal leaves the link, and what it leads to.
func TestOutputThatIsALinkIsLeft(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Manager.log = slog.New(slog.NewTextHandler(&log, nil))
	dir := t.TempDir()
	file := filepath.Join(dir, "configuration")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := f.paths.output(idOutput)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Cleanup(callerContext(t), false); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("the cleanup followed a link: %v", err)
	}
	if !strings.Contains(log.String(), "path="+link) {
		t.Errorf("no warning names %s: %s", link, &log)
	}
	if err := os.Remove(link); err != nil {
		t.Error(err)
	}
}

// TestSandboxDirectoryThatIsALinkIsLeft: so is what lies deeper, with an error.
func TestSandboxDirectoryThatIsALinkIsLeft(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "record.json")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := f.paths.sandbox(idA1)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := f.removeClaim(t.Context(), idA1); err == nil {
		t.Error("the removal says nothing of the link")
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("the removal followed a link: %v", err)
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}
