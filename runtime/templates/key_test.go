package templates

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

func inputs() Inputs {
	return Inputs{
		Base: "sha256:1", Copy: []File{{"sha256:a", "/a"}, {"sha256:b", "/b"}}, Run: []string{"one", "two"}, Seccomp: "compat", Env: []string{"A=1"}, Mode: "allow",
		Policy: policy.Spec{Mode: "allow", Allow: []string{"x.example"}, Map: map[string]string{"a.example": "192.0.2.1", "b.example": "192.0.2.2"}},
	}
}

// Each input is part of the key, and so is the order of files and commands. That of a map is not.
func TestKey(t *testing.T) {
	seen := map[string]string{inputs().Key(): "all"}
	for what, change := range map[string]func(i *Inputs){
		"base":         func(i *Inputs) { i.Base = "sha256:2" },
		"content":      func(i *Inputs) { i.Copy[0].Content = "sha256:c" },
		"target":       func(i *Inputs) { i.Copy[0].To = "/c" },
		"files":        func(i *Inputs) { i.Copy[0], i.Copy[1] = i.Copy[1], i.Copy[0] },
		"fewer files":  func(i *Inputs) { i.Copy = i.Copy[:1] },
		"command":      func(i *Inputs) { i.Run[1] = "three" },
		"commands":     func(i *Inputs) { i.Run[0], i.Run[1] = i.Run[1], i.Run[0] },
		"one command":  func(i *Inputs) { i.Run = []string{"one two"} },
		"seccomp":      func(i *Inputs) { i.Seccomp = "strict" },
		"variables":    func(i *Inputs) { i.Env = nil },
		"mode":         func(i *Inputs) { i.Mode = "open" },
		"rules":        func(i *Inputs) { i.Policy.Deny = []string{"y.example"} },
		"a mapped one": func(i *Inputs) { i.Policy.Map["a.example"] = "192.0.2.3" },
	} {
		i := inputs()
		change(&i)
		if other, ok := seen[i.Key()]; ok {
			t.Errorf("the key does not tell %s and %s apart", what, other)
		}
		seen[i.Key()] = what
	}
	if fields := reflect.TypeFor[Inputs]().NumField(); fields != 7 {
		t.Errorf("%d inputs: have each changed above", fields)
	}
	first := inputs().Key()
	for range 20 {
		if inputs().Key() != first {
			t.Fatal("the order of a map is part of the key")
		}
	}
}

// The content, the mode and the names of files count, and nothing is read again while they stay.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var c contents
	digest := func(path string) string {
		t.Helper()
		for p, k := range c.known { // as if a second had passed
			k.looked = time.Time{}
			c.known[p] = k
		}
		d, err := c.digest(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, tree := digest(name), digest(dir)
	if digest(name) != first {
		t.Error("the digest of the same differs")
	}
	write("two")
	if digest(name) == first || digest(dir) == tree {
		t.Error("another content has the same digest")
	}
	write("one")
	if digest(name) != first || digest(dir) != tree {
		t.Error("the first content has another digest")
	}
	if err := os.Chmod(name, 0o755); err != nil || digest(name) == first {
		t.Errorf("another mode has the same digest, %v", err)
	}
	if err := os.Symlink(name, filepath.Join(dir, "l")); err != nil || digest(filepath.Join(dir, "l")) != digest(name) {
		t.Errorf("a link has another digest than its file, %v", err)
	}
	if _, err := c.digest(t.Context(), filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), `there is no "`+dir+`/none"`) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A set-up is a build: copies first, then commands, as root and with the image's shell.
func TestPlan(t *testing.T) {
	base := images.Stored{Image: images.Image{Name: "py"}, Builds: image.ForBuilds{Shell: []string{"/bin/bash", "-c"}}}
	base.Config.Config.Env, base.Config.Config.WorkingDir = []string{"A=1"}, "/srv"
	p := planOf(plan.Setup{Run: []string{"x", "y"}, Copy: []plan.SetupCopy{{From: "/a", To: "/b/"}}}, base)
	if len(p.Stages) != 1 || len(p.Stages[0].Steps) != 3 || !p.Stages[0].Needed || p.Stages[0].Image != "py" {
		t.Fatalf("%+v", p)
	}
	steps := p.Stages[0].Steps
	if c := steps[0].Copy; c == nil || c.Sources[0] != "/a" || c.Dest != "/b/" || c.Owner != "0:0" || c.Stage != -1 {
		t.Errorf("copy %+v", c)
	}
	if r := steps[2].Run; r == nil || !reflect.DeepEqual(r.Args, []string{"/bin/bash", "-c", "y"}) || r.Dir != "/srv" || !reflect.DeepEqual(r.Env, []string{"A=1"}) || r.User != "" {
		t.Errorf("run %+v", r)
	}
	if _, err := p.ToWire().Unpack(nil); err != nil {
		t.Errorf("no build takes it: %v", err)
	}
}

// The log keeps its end, and the message of a failure the last lines of the last step.
func TestLog(t *testing.T) {
	var l buildLog
	l.add(images.BuildEvent{Step: 1, Steps: 2, Text: "first"})
	l.add(images.BuildEvent{Output: []byte(strings.Repeat("noise\n", maxLog/3))})
	l.add(images.BuildEvent{Step: 2, Steps: 2, Text: "second"})
	l.add(images.BuildEvent{Output: []byte("a\nb\nc\nd\ne\nf\xff\n" + strings.Repeat("x", 2*maxLine))})
	if got := l.String(); len(got) > maxLog+100 || !strings.HasPrefix(got, "[the beginning is cut]\n") || !strings.Contains(got, "\n[2/2] second\na\nb\n") {
		t.Errorf("%d bytes: %.80q", len(got), got)
	}
	if got, want := l.tail(), "c | d | e | f\ufffd | "+strings.Repeat("x", maxLine)+"…"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
