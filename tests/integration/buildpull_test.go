package integration

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/regtest"
)

// TestImageBuildPulls: images that a file names are pulled, by the values of its arguments: of
// FROM, of COPY --from, and of what a pulled image asks for.
func TestImageBuildPulls(t *testing.T) {
	s := newSource(t)
	d := harness.StartWith(t, s.config())
	for _, name := range []string{"one", "two", "three"} {
		s.Push(t, name, "1", shell(t), regtest.Tar(t, name, name))
	}
	s.PushConfig(t, "trigger", "1", image.ForBuilds{OnBuild: []string{"COPY --from=" + s.host + "/three:1 /three /three"}}, shell(t))
	build := func(file string, flags ...string) harness.Result {
		return d.TryWith(file, append([]string{"image", "build", "x", "-f", "-"}, flags...)...)
	}
	args := "ARG FROM=" + s.host + "/one\nARG TAG\nFROM ${FROM}:${TAG:-1}\n"
	if r := build(args, "--pull", "never"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-201") || !strings.Contains(r.Stderr, s.host+"/one:1") {
		t.Errorf("without pulling: %d: %s", r.Code, r.Stderr)
	}
	for _, tt := range []struct{ file, want string }{
		{args, "one"},
		{"ARG N=two\nFROM base\nCOPY --from=" + s.host + "/two:1 /two /two\n", "two"},
		{"ARG N=trigger\nFROM " + s.host + "/$N:1\n", "three"},
	} {
		if r := build(tt.file); r.Code != 0 {
			t.Errorf("%s: %d: %s", tt.file, r.Code, r.Stderr)
		} else if out := d.Run(t, "run", "--image", "x", "--", "cat", "/"+tt.want).Stdout; out != tt.want {
			t.Errorf("%s: /%s holds %q", tt.file, tt.want, out)
		}
	}
	if r := build(args, "--build-arg", "TAG=absent"); r.Code == 0 || !strings.Contains(r.Stderr, "/one:absent") {
		t.Errorf("an image that the registry lacks: %d: %s", r.Code, r.Stderr)
	}
	s.fetched()
	if r := build(args, "--pull", "always"); r.Code != 0 || s.fetched() != 1 { // the configuration, to find out that nothing has changed
		t.Errorf("--pull always: %d: %s", r.Code, r.Stderr)
	}
}

// TestImageBuildNeedsNoContext: only a file that reads files of the context has it sent, and
// none that is refused.
func TestImageBuildNeedsNoContext(t *testing.T) {
	for file, want := range map[string]bool{
		"FROM base\nCOPY . /x\n": true,
		"FROM base\nUSER root\nRUN --mount=type=bind,target=/x true\n":  true,
		"FROM base\nCOPY <<E /x\nx\nE\n":                                false,
		"FROM base\nUSER root\nRUN --mount=type=tmpfs,target=/x true\n": false,
		"FROM base AS a\nCOPY . /x\nFROM base\n":                        false,
		"FROM base\nCOPY . /x\nNOTHING\n":                               false,
	} {
		d := harness.Start(t)
		_ = d.Try("image", "build", "x", recipe(t, file, nil)) // one is refused
		if sent := strings.Contains(d.Log(), "ImportImage"); sent != want {
			t.Errorf("%q: the context was sent: %v", file, sent)
		}
	}
}

// TestImageNames: an image that is not there has the remedy that works here.
func TestImageNames(t *testing.T) {
	s := newSource(t)
	closed, open := harness.Start(t), harness.StartWith(t, s.config())
	hub := harness.StartWith(t, "registries: {allowed: [docker.io]}\n")
	for _, tt := range []struct {
		d    *harness.Daemon
		want string
	}{
		{closed, `such as docker.io/library/python:3.12-slim, is pulled once registries.allowed in the daemon's configuration has "docker.io"`},
		{hub, "a name with its registry is pulled: docker.io/library/python:3.12-slim"},
		{open, "a name with its registry is pulled, such as " + s.host + "/python:3.12-slim"},
	} {
		if r := tt.d.Try("run", "--image", "python:3.12-slim", "--", "true"); r.Code == 0 || !strings.Contains(r.Stderr, tt.want) {
			t.Errorf("run: %s", r.Stderr)
		}
		if r := tt.d.TryWith("FROM python:3.12-slim\n", "image", "build", "x", "-f", "-"); r.Code == 0 || !strings.Contains(r.Stderr, tt.want) {
			t.Errorf("build: %s", r.Stderr)
		}
	}
	s.Push(t, "python", "3.12-slim", shell(t))
	open.Run(t, "run", "--image", s.host+"/python:3.12-slim", "--", "sh", "-c", "true")
	closed.Run(t, "image", "tag", "base", "greeter")
	for _, args := range [][]string{{"run", "greeter"}, {"run", "--keep", "greeter"}, {"run", "-d", "greeter"}} {
		if r := closed.Try(args...); r.Code == 0 || !strings.Contains(r.Stderr, "an image is given by a flag: caisson run --image greeter\n") {
			t.Errorf("%v: %s", args, r.Stderr)
		}
	}
	closed.Run(t, "run", "--image", "greeter", "--", "true")
	for _, args := range [][]string{{"run", "no-such-command"}, {"run", "--image", "base", "greeter"}} {
		if r := closed.Try(args...); r.Code == 0 || strings.Contains(r.Stderr, "--image") {
			t.Errorf("%v: %s", args, r.Stderr)
		}
	}
}
