package layering

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPIIsAModule builds a program that imports the API, outside the workspace: it needs
// none of the daemon's dependencies.
func TestAPIIsAModule(t *testing.T) {
	api, err := filepath.Abs("../../api")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), `package main

import (
	"fmt"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/apitest"
)

func main() { fmt.Println(api.DefaultSocket, apitest.New) }
`)
	write(t, filepath.Join(dir, "go.mod"), `module example.com/importer

go 1.26.6

require github.com/caisson-run/caisson/api v0.1.0

replace github.com/caisson-run/caisson/api => `+api+"\n")
	outside(t, dir, "go", "mod", "tidy")
	outside(t, dir, "go", "build", "-o", os.DevNull, ".")
	modules := strings.Fields(outside(t, dir, "go", "list", "-m", "-f", "{{.Path}}", "all"))
	if len(modules) > 2+5 { // itself, the API, and what that requires
		t.Errorf("an importer of the API gets %q", modules)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func outside(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestNoMethodByName: a program that finds methods by their names, as templates do, has to
// keep every exported method of every type. That is a quarter of caisson.
func TestNoMethodByName(t *testing.T) {
	cmd := exec.Command("go", "build", "-ldflags=-dumpdep", "-o", os.DevNull, module+"cmd/caisson")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Errorf("looks for methods: %s", line)
		}
	}
}
