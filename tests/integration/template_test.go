package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// templateConfig has a profile tool whose set-up runs what lines are given, with a file of the
// host.
func templateConfig(file string, lines ...string) string {
	var run strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&run, "        - %q\n", line)
	}
	return "peers: [{uids: [54321], profiles: [tool]}, {uids: [54322]}]\nprofiles:\n  tool:\n    setup:\n      copy: [{from: " + file + ", to: /etc/tool.conf}]\n      run:\n" + run.String()
}

type templateView struct {
	Profile, State, Key, Error, Log string
	Image                           listedImage
}

func templateOf(t *testing.T, d *harness.Daemon) (v templateView) {
	t.Helper()
	d.Run(t, "template", "inspect", "tool", "--json").JSON(t, &v)
	return v
}

// builds is how many set-ups ended in a way.
func builds(t *testing.T, d *harness.Daemon, how string) int {
	t.Helper()
	return strings.Count(d.Run(t, "events", "--since", "1h", "--filter", "type=template."+how, "-o", "json").Stdout, `"run.caisson.template.`+how+`"`)
}

const (
	installs = "id -u; cp /etc/tool.conf /usr/bin/tool.conf; chmod 644 /usr/bin/tool.conf; mkdir -p /usr/local/bin; printf '#!/bin/sh\\necho tool\\n' >/usr/local/bin/tool; chmod 755 /usr/local/bin/tool; sleep 1"
	addsUser = "echo dev:x:1234:1234::/home/dev:/bin/sh >>/etc/passwd; mkdir /home/dev; chown 1234:1234 /home/dev"
	uses     = "tool; cat /usr/bin/tool.conf; stat -c '%u %a' /etc/tool.conf; id -un; test ! -w /usr/local/bin && echo closed"
)

// TestTemplates: the set-up of a profile runs once, for all callers and across a kill of the
// daemon, and again when a file or a command of it changed. What it made is there, as root's.
func TestTemplates(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tool.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	d := harness.StartWith(t, templateConfig(file, installs, addsUser))
	if r := d.Try("run", "--", "tool"); r.Code != 127 {
		t.Fatalf("without the profile: %d, %s", r.Code, r.Stdout)
	}
	use := []string{"run", "--profile", "tool", "--user", "dev", "--", "sh", "-c", uses}
	a := d.User(t, ann)
	var all sync.WaitGroup
	for n := range 8 {
		run := d.Try
		if n%2 == 1 {
			run = a.Try
		}
		all.Go(func() {
			if r := run(use...); r.Code != 0 || r.Stdout != "tool\none\n0 640\ndev\nclosed\n" {
				t.Errorf("%d: %d, %q, %s", n, r.Code, r.Stdout, r.Stderr)
			}
		})
	}
	all.Wait()
	if n := builds(t, d, "built"); n != 1 {
		t.Errorf("%d builds for 8 requests", n)
	}
	first := templateOf(t, d)
	if first.State != "ready" || !strings.Contains(first.Log, "setup.run[0]") || !strings.Contains(first.Log, "\n0\n") {
		t.Errorf("%+v", first)
	}
	b := d.User(t, bob)
	b.Refused(t, "SBX-805", "run", "--json", "--profile", "tool", "--", "true")
	b.Refused(t, "SBX-201", "run", "--json", "--image", first.Image.Name, "--", "cat", "/etc/tool.conf")
	a.Refused(t, "SBX-805", "template", "rm", "--json", "tool")
	a.Refused(t, "SBX-805", "template", "build", "--json", "tool")
	if r := a.Try("image", "rm", first.Image.Name); r.Code == 0 {
		t.Error("a user removed the template of root's")
	}
	if out := a.Run(t, "template", "ls").Stdout; !strings.Contains(out, "tool") {
		t.Errorf("ann: %s", out)
	}
	if out := b.Run(t, "template", "ls", "--json").Stdout; strings.TrimSpace(out) != "[]" {
		t.Errorf("bob: %s", out)
	}
	d.Run(t, "image", "prune", "--filter", "unused")
	d.Kill(t)
	d.Launch(t)
	d.Run(t, use...)
	if n := builds(t, d, "built"); n != 0 {
		t.Errorf("%d builds of the second daemon", n)
	}

	write("two\n")
	await(t, "the new file", func() bool {
		return strings.HasPrefix(d.Run(t, use...).Stdout, "tool\ntwo\n")
	})
	reload(t, d, templateConfig(file, installs, addsUser, "touch /usr/third"))
	d.Run(t, "run", "--profile", "tool", "--", "test", "-e", "/usr/third")
	if n := builds(t, d, "built"); n != 2 {
		t.Errorf("%d builds for two changes", n)
	}
	reload(t, d, templateConfig(file, installs, addsUser))
	d.Run(t, use...)
	if n := builds(t, d, "built"); n != 2 {
		t.Errorf("the old commands were run again")
	}

	d.Run(t, "create", "--name", "user", "--profile", "tool")
	d.Refused(t, "SBX-210", "template", "rm", "--json", "tool")
	d.Run(t, "rm", "--force", "user")
	d.Run(t, "template", "rm", "tool")
	if v := templateOf(t, d); v.State != "absent" || v.Log != "" {
		t.Errorf("removed: %+v", v)
	}
	for _, i := range images(t, d.Run) {
		if strings.HasPrefix(i.Name, "template/") {
			t.Errorf("left %s", i.Name)
		}
	}
	if out := d.Run(t, "template", "build", "tool").Stdout; !strings.HasPrefix(out, "template/tool:") {
		t.Errorf("built %q", out)
	}
	d.Run(t, "template", "rm", "tool")
}

// TestTemplateFails: a set-up that fails leaves its log and no template. Requests get its answer
// without a build of their own, until its inputs change or root builds it again.
func TestTemplateFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, templateConfig(file, "touch /usr/half", "echo looking; echo no such package >&2; exit 7"))
	for range 3 {
		f := d.Refused(t, "SBX-244", "run", "--json", "--profile", "tool", "--", "true")
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "setup.run[1]") || !strings.Contains(all, "exited with 7") || !strings.Contains(all, "no such package") || !strings.Contains(all, "looking") || !strings.Contains(f.Error.Remedy, "template inspect tool") {
			t.Errorf("%+v", f.Error)
		}
	}
	if n := builds(t, d, "failed"); n != 1 {
		t.Errorf("%d builds of three requests", n)
	}
	v := templateOf(t, d)
	if v.State != "failed" || !strings.Contains(v.Error, "exited with 7") || !strings.Contains(v.Log, "no such package") {
		t.Errorf("%+v", v)
	}
	for _, i := range images(t, d.Run) {
		if strings.HasPrefix(i.Name, "template/") {
			t.Errorf("left %s", i.Name)
		}
	}
	if r := d.Try("template", "build", "tool"); r.Code != 125 || !strings.Contains(r.Stderr, "SBX-244") {
		t.Errorf("template build: %d, %s", r.Code, r.Stderr)
	}
	if n := builds(t, d, "failed"); n != 2 {
		t.Errorf("%d builds after template build", n)
	}
	reload(t, d, templateConfig(file, "touch /usr/whole"))
	d.Run(t, "run", "--profile", "tool", "--", "sh", "-c", "test -e /usr/whole && test ! -e /usr/half")
	if v := templateOf(t, d); v.State != "ready" || v.Error != "" {
		t.Errorf("mended: %+v", v)
	}
}

// TestTemplateOfNobody: a build ends when all who wait for it have gone, and leaves nothing. Who
// stays gets it.
func TestTemplateOfNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, templateConfig(file, "sleep 3; echo done"))
	state := func() string { return templateOf(t, d).State }
	start := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		t.Helper()
		var out bytes.Buffer
		cmd := d.Command(t.Context(), append([]string{"run", "--profile", "tool", "--"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	interrupt := func(cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the interrupted run succeeded")
		}
	}
	first, _ := start("true")
	await(t, "the build", func() bool { return state() == "building" })
	interrupt(first)
	await(t, "its end", func() bool { return state() == "absent" })

	first, _ = start("true")
	await(t, "the build", func() bool { return state() == "building" })
	began := time.Now()
	second, out := start("echo", "second")
	time.Sleep(500 * time.Millisecond) // for the second to join the build, before the first leaves it
	interrupt(first)
	if err := second.Wait(); err != nil || out.String() != "second\n" {
		t.Errorf("the second: %v, %s", err, out)
	}
	if n := builds(t, d, "built"); n != 1 || time.Since(began) > time.Minute {
		t.Errorf("%d builds, %s", n, time.Since(began))
	}

	d.Run(t, "template", "rm", "tool")
	third, _ := start("true")
	await(t, "the build", func() bool { return state() == "building" })
	d.Kill(t)        // in the middle
	_ = third.Wait() // it may go on with the next daemon
	d.Launch(t)
	if r := d.Try("run", "--profile", "tool", "--", "echo", "third"); r.Code != 0 || r.Stdout != "third\n" {
		t.Errorf("after a kill: %d, %s", r.Code, r.Stderr)
	}
	d.Run(t, "template", "rm", "tool")
}

// TestTemplateSnapshot: a snapshot keeps the template that it was written on, also when the
// set-up is another one.
func TestTemplateSnapshot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const disk = "    rootfs: rw\n    disk: 64M\n    root_user: setup\n    seccomp: compat\n"
	d := harness.StartWith(t, templateConfig(file, "echo first >/usr/made")+disk)
	d.Run(t, "create", "--name", "a", "--profile", "tool", "--user", "root")
	d.Run(t, "exec", "a", "--", "sh", "-c", "echo written >/usr/more")
	d.Run(t, "snapshot", "create", "a", "--name", "s")
	reload(t, d, templateConfig(file, "echo second >/usr/made")+disk)
	if got := d.Run(t, "run", "--profile", "tool", "--", "sh", "-c", "cat /usr/made; ls /usr/more 2>/dev/null || echo none").Stdout; got != "second\nnone\n" {
		t.Errorf("of the new set-up: %q", got)
	}
	const want = "first\nwritten\n"
	if got := d.Run(t, "run", "--from", "s", "--", "cat", "/usr/made", "/usr/more").Stdout; got != want {
		t.Errorf("from the snapshot: %q", got)
	}
	fork := strings.TrimSpace(d.Run(t, "fork", "a").Stdout)
	if got := d.Run(t, "exec", fork, "--", "cat", "/usr/made", "/usr/more").Stdout; got != want {
		t.Errorf("of the fork: %q", got)
	}
	d.Run(t, "rm", "--force", "a", fork)
	d.Refused(t, "SBX-210", "template", "rm", "--json", "tool")
	d.Run(t, "snapshot", "rm", "s")
	d.Run(t, "template", "rm", "tool")
}

// TestTemplatePooled: the daemon builds the template of a pool's profile at its start, and its
// ready sandboxes begin with it. Those of a template that was superseded go.
func TestTemplatePooled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const pools = "pools: [{profile: tool, size: 1}]\n"
	d := harness.StartWith(t, templateConfig(file, "echo first >/usr/made")+pools)
	awaitReady(t, d, 1)
	if n := builds(t, d, "built"); n != 1 {
		t.Errorf("%d builds at the start", n)
	}
	hit := func(want string) bool {
		t.Helper()
		before := poolOf(t, d).Hits
		got := d.Run(t, "run", "--profile", "tool", "--", "cat", "/usr/made").Stdout
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
		return poolOf(t, d).Hits > before
	}
	if !hit("first\n") {
		t.Error("the ready one was not taken")
	}
	reload(t, d, templateConfig(file, "echo second >/usr/made")+pools)
	hit("second\n")
	await(t, "a ready one of the second", func() bool { return hit("second\n") })
}
