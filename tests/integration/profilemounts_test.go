package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// The mounts of a profile are those of each of its sandboxes, ready ones too, with the
// rights of the caller.
func TestProfileMounts(t *testing.T) {
	t.Parallel()
	cache, out, private := workspace(t, ann, ann), workspace(t, ann, ann), workspace(t, 4321, 4321)
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{cache: 0o755, out: 0o755} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "name"), []byte(filepath.Base(dir)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := `peers: [{uids: [54321], profiles: [web, closed]}]
profiles:
  web:
    mounts:
      - {type: bind, source: ` + cache + `, target: /cache, readonly: true}
      - {type: bind, source: ` + out + `, target: /out}
      - {type: tmpfs, target: /scratch, size: 2M}
      - {type: tmpfs, target: /out/tmp}
  closed:
    mounts: [{type: bind, source: ` + private + `, target: /private}]
pools: [{profile: web, size: 1}]
`
	if err := os.Mkdir(filepath.Join(out, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, config)
	const script = `cat /cache/name; touch /cache/x || echo refused; echo $0 > /out/made; head -c 3000000 /dev/zero > /scratch/big || echo full; touch /out/tmp/x && echo written`
	want := filepath.Base(cache) + "\nrefused\nfull\nwritten\n"
	for name, flags := range map[string][]string{"ready": nil, "made": {"--open-files", "900"}} {
		for _, who := range []struct {
			name string
			run  func(testing.TB, ...string) harness.Result
		}{{"root", d.Run}, {"ann", d.User(t, ann).Run}} {
			awaitReady(t, d, 1)
			hits := poolOf(t, d).Hits
			args := append([]string{"create", "--profile", "web", "--name", "m"}, flags...)
			who.run(t, args...)
			if got := who.run(t, "exec", "m", "--", "sh", "-c", script, name).Stdout; got != want {
				t.Errorf("%s, %s: %q, want %q", name, who.name, got, want)
			}
			if b, err := os.ReadFile(filepath.Join(out, "made")); string(b) != name+"\n" {
				t.Errorf("%s, %s: wrote %q, %v", name, who.name, b, err)
			}
			if _, err := os.Stat(filepath.Join(out, "tmp", "x")); err == nil {
				t.Errorf("%s, %s: the tmpfs in the bind is not there", name, who.name)
			}
			if taken := poolOf(t, d).Hits > hits; taken != (name == "ready") {
				t.Errorf("%s, %s: taken from the pool: %v", name, who.name, taken)
			}
			who.run(t, "inspect", "--all", "m") // compares the live process with its spec
			seen := who.run(t, "ls", "-o", "json").Stdout
			if !strings.Contains(seen, "2097152") || !strings.Contains(seen, cache) {
				t.Errorf("%s, %s: ls tells %s", name, who.name, seen)
			}
			who.run(t, append(args, "--ensure")...)
			who.run(t, "rm", "--force", "m")
		}
	}
	// The request's own mount replaces the profile's on the same target.
	if got := d.Run(t, "run", "--profile", "web", "--mount", "type=bind,src="+out+",dst=/cache,ro", "--", "cat", "/cache/name", "/out/name").Stdout; got != strings.Repeat(filepath.Base(out)+"\n", 2) {
		t.Errorf("a mount of the request: %q", got)
	}
	// A profile gives no right to a directory.
	d.Run(t, "run", "--profile", "closed", "--", "touch", "/private/probe")
	d.User(t, ann).Refused(t, "SBX-805", "run", "--profile", "closed", "-o", "json", "--", "true")
	for mounts, reason := range map[string]string{
		"{type: bind, source: /etc, target: /e}":                                         "profiles.web.mounts: ",
		"{type: bind, source: relative, target: /e}":                                     "clean absolute path",
		"{type: bind, source: " + out + ", target: /proc/x}":                             "own /proc",
		"{type: bind, target: /e}":                                                       "clean absolute path",
		"{type: bind, source: " + out + ", target: /e, size: 1M}":                        "a size is for type tmpfs",
		"{type: tmpfs, target: /e, size: 1K}":                                            "give 64K to 1T",
		"{type: tmpfs, target: /e, size: much}":                                          "mounts[0].size",
		"{type: volume, target: /e}":                                                     "volume",
		"{type: volume, source: a/b, target: /e}":                                        "volume",
		"{type: tmpfs, target: /e}, {type: tmpfs, target: /e}":                           "two mounts",
		"{type: tmpfs, target: /e}, {type: bind, source: " + out + ", target: /e/below}": "lies in the tmpfs",
		"{}": "profiles.web.mounts",
	} {
		d.Configure(t, "profiles:\n  web:\n    mounts: ["+mounts+"]\n")
		if r := d.Try("config", "reload", "-o", "json"); r.Code != 125 || !strings.Contains(r.Stdout, reason) || !strings.Contains(r.Stdout, "SBX-105") {
			t.Errorf("%s: code %d, %s", mounts, r.Code, r.Stdout)
		}
	}
}
