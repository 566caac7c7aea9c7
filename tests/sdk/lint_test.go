package sdk

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// linters installs the programs of testdata/lint and returns how one is called in a directory.
func linters(t *testing.T) func(dir, program string, args ...string) (string, error) {
	t.Helper()
	need.Tools(t, "node", "npm")
	home := t.TempDir()
	if err := os.CopyFS(home, os.DirFS("testdata/lint")); err != nil {
		t.Fatal(err)
	}
	runIn(t, home, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	return func(dir, program string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(home, "node_modules/.bin", program), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+home, "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// TestLinters has others' programs judge what the SDKs and other clients are made from. Each
// judges a spoilt copy too, and must find what is wrong there.
func TestLinters(t *testing.T) {
	lint := linters(t)
	t.Run("the OpenAPI document by redocly", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile("../../api/openapi/openapi.json")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		judge := func(document []byte) (string, error) {
			if err := os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o600); err != nil {
				t.Fatal(err)
			}
			return lint(dir, "redocly", "lint", "openapi.json") // by its default rules: there is no configuration
		}
		if out, err := judge(data); err != nil || strings.Contains(out, "You have") { // so many warnings
			t.Errorf("%v\n%s", err, out)
		}
		var spoilt map[string]any
		if err := json.Unmarshal(data, &spoilt); err != nil {
			t.Fatal(err)
		}
		delete(spoilt, "security")
		if data, err = json.Marshal(spoilt); err != nil {
			t.Fatal(err)
		}
		if out, err := judge(data); err == nil || !strings.Contains(out, "security-defined") {
			t.Errorf("a document without security passes: %v\n%s", err, out)
		}
	})
	t.Run("the types of Python by pyright", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		copyTree(t, filepath.Join(sourceDir, "caisson"), filepath.Join(dir, "caisson"))
		if out, err := lint(dir, "pyright", "caisson"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		const wrong = "from caisson import Sandbox\nSandbox.create(memroy='1G')\nSandbox.create(ttl=[])\n"
		if err := os.WriteFile(filepath.Join(dir, "wrong.py"), []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := lint(dir, "pyright", "wrong.py")
		if err == nil || !strings.Contains(out, `No parameter named "memroy"`) || !strings.Contains(out, "2 errors") {
			t.Errorf("wrong options pass: %v\n%s", err, out)
		}
	})
}
