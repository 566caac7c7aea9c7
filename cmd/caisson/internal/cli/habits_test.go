package cli_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestHabits: what people type who know other command lines.
func TestHabits(t *testing.T) {
	for line, want := range map[string]string{
		"--version": "caisson version ", "-v": "caisson version ",
		"-h run": "Usage:\n  caisson run ", "--help exec": "Usage:\n  caisson exec ",
	} {
		code, stdout, stderr := invoke(t, &servertest.Fake{}, "", strings.Fields(line)...)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: %d %.200s %s", line, code, stdout, stderr)
		}
	}
	for line, want := range map[string]string{"cp -r . box:/tmp": "all that is in it", "create --workdir /tmp": "run and exec"} {
		if code, _, stderr := invoke(t, &servertest.Fake{}, "", strings.Fields(line)...); code != cli.ExitRuntime || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", line, code, stderr)
		}
	}
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "run", "--rm", "--", "true"); code != 0 {
		t.Errorf("--rm: %s", stderr)
	}
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "run", "-d", "--rm", "--", "true"); code != cli.ExitRuntime || !strings.Contains(stderr, "--ttl removes it") {
		t.Errorf("-d --rm: %d %s", code, stderr)
	}
}

// TestTerminalThatIsNone: a command must not wait for somebody who cannot type.
func TestTerminalThatIsNone(t *testing.T) {
	for _, line := range []string{"run -it -- sh", "exec -it box -- sh", "shell box"} {
		code, _, stderr := invoke(t, &servertest.Fake{}, "input", strings.Fields(line)...)
		if code != cli.ExitRuntime || !strings.Contains(stderr, "standard input is not a terminal") || !strings.Contains(stderr, "leave -t away") {
			t.Errorf("%s: %d %s", line, code, stderr)
		}
	}
}

func TestEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# settings\nA=1\n\nB=two words\r\nFROM_HERE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FROM_HERE", "inherited")
	var got []string
	f := &servertest.Fake{OnRun: func(_ context.Context, req plan.Request, _ runtime.IO) (*runtime.Result, error) {
		got = req.Exec.Env
		return &runtime.Result{}, nil
	}}
	code, _, stderr := invoke(t, f, "", "run", "--env-file", file, "-e", "A=2", "--", "true")
	if want := []string{"A=2", "B=two words", "FROM_HERE=inherited"}; code != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d %q %s", code, got, stderr)
	}
	if code, _, stderr := invoke(t, f, "", "run", "--env-file", file+".absent", "--", "true"); code != cli.ExitRuntime || !strings.Contains(stderr, "no such file") {
		t.Errorf("%d %s", code, stderr)
	}
}

// TestElsewhere: what other tools have is answered with what there is here.
func TestElsewhere(t *testing.T) {
	for line, want := range map[string]string{
		"images":                       "use caisson image ls",
		"tag a b":                      "use caisson image tag",
		"commit box image":             "use caisson cp",
		"start box":                    "it makes an ended sandbox anew",
		"ps":                           "caisson ls lists sandboxes",
		"ps -a":                        "-a: caisson ls lists all sandboxes",
		"run -v /x:/y -- true":         "-v: --workspace DIR[:PATH][:ro] binds",
		"create --privileged":          "--privileged: no sandbox gets a capability",
		"run --pids-limit 5 -- true":   "--pids",
		"run --image base -- alpine":   "--image alpine\n",
		"run ubuntu:22.04 bash -c ls":  "--image ubuntu:22.04 -- bash -c ls",
		"run -- alpine-is-not-a-image": "check the name",
	} {
		f := &servertest.Fake{OnRun: func(context.Context, plan.Request, runtime.IO) (*runtime.Result, error) {
			return nil, sbxerr.WithRemedy(sbxerr.CommandAbsent, "fake.run", errors.New("not found"), "check the name")
		}}
		code, _, stderr := invoke(t, f, "", strings.Fields(line)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s, want %s", line, code, stderr, want)
		}
	}
	words := map[string]bool{}
	for _, v := range cli.NewApp(whole, nil, nil, nil).Verbs() {
		words[v.Name] = true
	}
	for word := range cli.VerbsElsewhere {
		if words[word] {
			t.Errorf("there is a command %s", word)
		}
	}
}
