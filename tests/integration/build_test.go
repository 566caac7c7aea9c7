package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// recipe makes a context of a Dockerfile and files.
func recipe(t *testing.T, dockerfile string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files = merged(files, "Dockerfile", dockerfile)
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func merged(files map[string]string, name, content string) map[string]string {
	out := map[string]string{name: content}
	for k, v := range files {
		out[k] = v
	}
	return out
}

// TestImageBuild: stages, copies, commands, and what the image says of itself.
func TestImageBuild(t *testing.T) {
	d := harness.Start(t)
	dir := recipe(t, `FROM base AS tools
USER root
RUN mkdir /opt/t && echo 'echo made-by $1' > /opt/t/make && chmod 755 /opt/t/make
FROM base
ARG V=1
USER root
ENV GREETING="hi $V"
WORKDIR /srv/app
COPY . .
COPY --from=tools --chown=caisson /opt/t/ /sbin/
RUN make=$(/bin/sh /bin/make build); echo "$make v$V" > out; chown 33:34 out; rm a.txt; rm -r /usr/share; mkdir /home/x; echo no >> /etc/hosts
USER 1000
LABEL org.example.x=y
ENTRYPOINT ["cat"]
CMD ["/srv/app/out"]
`, map[string]string{"a.txt": "a", "dev/x": "x", ".env": "secret", "node_modules/y": "y", ".dockerignore": "node_modules\n.env\n"})
	first := d.Run(t, "image", "build", "app", dir, "--build-arg", "V=7")
	if !strings.Contains(first.Stderr, "[7/7] RUN make=") {
		t.Errorf("progress:\n%s", first.Stderr)
	}
	script := `cat out; find . | sort | tr '\n' ' '; stat -c %u:%g out /bin/make; echo $GREETING; ls /usr/share 2>&1; ls -a / | grep -c context; grep -cx no /etc/hosts; pwd; id -u`
	got := d.Run(t, "run", "--image", "app", "--", "sh", "-c", script).Stdout
	want := "made-by build v7\n. ./.dockerignore ./Dockerfile ./dev ./dev/x ./out 33:34\n1000:1000\nhi 7\nls: /usr/share: No such file or directory\n0\n0\n/srv/app\n1000\n"
	if got != want {
		t.Errorf("the image holds:\n%s\nwant:\n%s", got, want)
	}
	if got := d.Run(t, "run", "--image", "app").Stdout; got != "made-by build v7\n" {
		t.Errorf("its own command prints %q", got)
	}
	var detail struct {
		Source string
		Config struct {
			Created time.Time
			Config  struct {
				Labels          map[string]string
				Entrypoint, Cmd []string
			}
		} `json:"config_json"`
	}
	d.Run(t, "image", "inspect", "app").JSONIn(t, "image", &detail)
	if c := detail.Config; detail.Source != "build" || time.Since(c.Created) > time.Hour || c.Config.Labels["org.example.x"] != "y" || strings.Join(c.Config.Entrypoint, " ") != "cat" {
		t.Errorf("inspect says %+v", detail)
	}
	if all := names(t, d); all != "app base" {
		t.Errorf("images: %s", all)
	}
	if again := d.Run(t, "image", "build", "app", dir, "--build-arg", "V=7"); strings.Count(again.Stderr, "(cached)") != 5 || strings.Contains(again.Stderr, "context") {
		t.Errorf("again:\n%s", again.Stderr)
	}
	other := d.Run(t, "image", "build", "app", dir, "--build-arg", "V=8").Stderr
	if strings.Count(other, "(cached)") != 4 || !strings.Contains(other, "replaced the image app") {
		t.Errorf("with another argument:\n%s", other)
	}
	if none := d.Run(t, "image", "build", "app", dir, "--no-cache").Stderr; strings.Contains(none, "(cached)") {
		t.Errorf("without the cache:\n%s", none)
	}
}

// TestImageBuildRights: root of a build step has seven capabilities there, and no step has
// a way out. A sandbox of the image has none of that.
func TestImageBuildRights(t *testing.T) {
	d := harness.Start(t)
	build := func(run string, flags ...string) harness.Result {
		return d.TryWith("FROM base\nUSER root\nRUN "+run+"\n", append([]string{"image", "build", "x", "-f", "-"}, flags...)...)
	}
	if r := build(`grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status; grep NoNewPrivs /proc/self/status`); strings.Count(r.Stderr, "00000000000000fb") != 3 || !strings.Contains(r.Stderr, "NoNewPrivs:\\t1") {
		t.Errorf("capabilities: %s", r.Stderr)
	}
	if r := d.TryWith("FROM base\nUSER 1000\nRUN grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status\n", "image", "build", "x", "-f", "-"); strings.Count(r.Stderr, "0000000000000000") != 3 {
		t.Errorf("capabilities of a user: %s", r.Stderr)
	}
	for name, run := range map[string]string{
		"mknod":     "mknod /null c 1 3",
		"mount":     "mount -t tmpfs x /mnt",
		"unshare":   "unshare -m true",
		"hostname":  "hostname x",
		"network":   "wget -T 2 http://198.51.100.1/",
		"sysctl":    "echo 1 > /proc/sys/kernel/panic",
		"chroot":    "chroot / true",
		"own files": "echo x > /run/caisson/caisson-init",
	} {
		if r := build(run); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-229") {
			t.Errorf("%s: exit code %d: %s", name, r.Code, r.Stderr)
		}
	}
	if r := build("touch /x && chmod 4755 /x && chown 1:1 /x"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if out := d.Run(t, "run", "--image", "x", "--", "stat", "-c", "%a %u", "/x").Stdout; out != "755 1\n" {
		t.Errorf("a set-id file became %q", out)
	}
	if r := d.Try("run", "--image", "x", "--user", "0", "--", "true"); r.Code == 0 {
		t.Error("a sandbox runs as root")
	}
}

// TestImageBuildFails: each failure has its code, and leaves neither an image nor files.
func TestImageBuildFails(t *testing.T) {
	d := harness.Start(t)
	for name, tt := range map[string]struct {
		file  string
		flags []string
		want  []string
	}{
		"an exit code":    {"FROM base\nRUN exit 3\n", nil, []string{"SBX-229", "line 2", "exited with 3"}},
		"a timeout":       {"FROM base\nRUN sleep 60\n", []string{"--timeout", "1s"}, []string{"SBX-229", "timed out", "--timeout"}},
		"memory":          {"FROM base\nUSER root\nRUN cat /dev/zero | tail\n", []string{"--memory", "32M"}, []string{"SBX-229", "memory"}},
		"files":           {"FROM base\nUSER root\nRUN dd if=/dev/zero of=/big bs=1M count=100\n", []string{"--tmpfs", "16M"}, []string{"SBX-229", "No space left"}},
		"a line":          {"FROM base\nRUN touch /never\nFETCH /x\n", nil, []string{"SBX-228", "line 3: ", "FETCH"}},
		"no such image":   {"FROM nothing\n", nil, []string{"SBX-201", "line 1"}},
		"no such file":    {"FROM base\nCOPY absent /\n", nil, []string{"SBX-101", "line 2", "absent"}},
		"no such user":    {"FROM base\nUSER nobodyhere\nRUN true\n", nil, []string{"SBX-205", "line 3"}},
		"through a link":  {"FROM base\nCOPY out/passwd /x\n", nil, []string{"SBX-101", "line 2"}},
		"the host's /dev": {"FROM base\nUSER root\nCOPY a /proc/x/\nRUN test -e /proc/x\n", nil, []string{"SBX-229"}},
		"bad memory":      {"FROM base\n", []string{"--memory", "0"}, []string{"--memory"}},
	} {
		dir := recipe(t, tt.file, map[string]string{"a": "a"})
		if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := d.Try(append([]string{"image", "build", "x", dir}, tt.flags...)...)
		for _, want := range tt.want {
			if r.Code == 0 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%s: exit code %d, want %q: %s", name, r.Code, want, r.Stderr)
			}
		}
	}
	if all := names(t, d); all != "base" {
		t.Errorf("images: %s", all)
	}
	if usage := d.Run(t, "image", "du").Stdout; strings.Contains(usage, "build-context") {
		t.Errorf("contexts are left:\n%s", usage)
	}
}

// TestImageBuildAborted: a client that goes away ends the build, with its sandbox.
func TestImageBuildAborted(t *testing.T) {
	d := harness.Start(t)
	dir := recipe(t, "FROM base\nCOPY a /a\nRUN echo begun; sleep 300\n", map[string]string{"a": "a"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := d.Command(ctx, "image", "build", "x", dir, "-o", "json")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := json.NewDecoder(out); ; {
		var line struct{ Type, Text string }
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Text == "begun" {
			break
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
	deadline := time.Now().Add(20 * time.Second)
	for {
		list, usage := d.Run(t, "ls").Stdout, d.Run(t, "image", "du").Stdout
		if strings.Count(list, "\n") == 1 && !strings.Contains(usage, "build-context") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left:\n%s\n%s", list, usage)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if all := names(t, d); all != "base" {
		t.Errorf("images: %s", all)
	}
}

// Builds of one user at once store no more together than the quota. One alone may.
func TestBuildsAtOnceStayWithinQuota(t *testing.T) {
	d := harness.StartWith(t, strings.Replace(importers, "quota: {images: 64M}", "quota: {images: 10M}\n    profiles: [strict, compat]", 1))
	ann := d.User(t, ann)
	build := func(n int) harness.Result {
		return ann.TryWith(fmt.Sprintf("FROM base\nUSER root\nRUN sleep 2; head -c 3000000 /dev/zero > /big%d\n", n), "image", "build", fmt.Sprint("app", n), "-f", "-", "--memory", "128M")
	}
	results := make([]harness.Result, 6)
	var all sync.WaitGroup
	for n := range results {
		all.Go(func() { results[n] = build(n) })
	}
	all.Wait()
	stored := 0
	for n, r := range results {
		switch {
		case r.Code == 0:
			stored++
		case !strings.Contains(r.Stderr, "SBX-204") || !strings.Contains(r.Stderr, "quota.images"):
			t.Errorf("build %d: %+v", n, r)
		}
	}
	if stored < 1 || stored > 3 {
		t.Errorf("%d of %d builds of 3 MB were stored, with a quota of 10", stored, len(results))
	}
}

// TestImageBuildOfUsers: a user's build is that user's own, with the cache and the quota.
func TestImageBuildOfUsers(t *testing.T) {
	d := harness.StartWith(t, strings.Replace(importers, "quota: {images: 64M}", "quota: {images: 8M}\n    limits: {memory: 1G}\n    profiles: [strict, compat]\n  - uids: [54323]", 1))
	a, b, other := d.User(t, ann), d.User(t, bob), d.User(t, 54323)
	file := "FROM base\nUSER root\nRUN id -u > /who; cat /etc/hostname; head -c 1000000 /dev/zero > /big\n"
	args := []string{"image", "build", "app", "-f", "-"}
	for name, u := range map[string]harness.User{"ann": a, "bob": b} {
		if r := u.TryWith(file, args...); r.Code != 0 || strings.Contains(r.Stderr, "cached") {
			t.Errorf("the build of %s: %+v", name, r)
		}
		if r := u.TryWith(file, args...); r.Code != 0 || !strings.Contains(r.Stderr, "cached") {
			t.Errorf("the second build of %s: %+v", name, r)
		}
	}
	if list := images(t, a.Run); len(list) != 2 {
		t.Errorf("ann sees %+v", list)
	}
	if r := a.TryWith("FROM app\nUSER root\nRUN head -c 9000000 /dev/zero > /more\n", args...); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-204") {
		t.Errorf("past the quota: %+v", r)
	}
	if r := other.TryWith(file, args...); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-805") {
		t.Errorf("a user without the right: %+v", r)
	}
	if r := a.TryWith(file, append(args, "--memory", "2G", "--no-cache")...); r.Code == 0 {
		t.Errorf("past the ceiling: %+v", r)
	}
}
