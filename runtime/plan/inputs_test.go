package plan

import (
	"strings"
	"testing"
)

// An input file lies on a tmpfs of the sandbox, whatever is mounted in it.
func TestInputsLieOnTmpfs(t *testing.T) {
	base := Defaults{User: User{UID: 1000, GID: 1000}, Cwd: "/", Tmpfs: []string{"/scratch", "/workspace/tmp"}, Binds: []string{"/workspace", "/home/me/src"}}
	for path, want := range map[string]string{
		"key": "/dev/shm/caisson-input/key", "/tmp/key": "/tmp/key", "/home/me/key": "/home/me/key", "/home/me/srcs": "/home/me/srcs",
		"/scratch/key": "/scratch/key", "/workspace/tmp/key": "/workspace/tmp/key",
		"/workspace/key": "", "/home/me/src/key": "", "/tmp": "", "/etc/key": "", "/run/key": "", "/scratch": "", "/": "", ".": "", "..": "", "a/b": "", "/tmp/../etc/key": "",
	} {
		r := ExecRequest{Args: []string{"true"}, Inputs: []InputRequest{{Path: path}}}
		c, err := r.Command(base, nil)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q becomes %q", path, c.Inputs[0].Path)
		case want != "" && (err != nil || c.Inputs[0].Path != want || c.Inputs[0].Mode != 0o400):
			t.Errorf("%q: %v, want %q", path, err, want)
		case err != nil && !strings.Contains(err.Error(), "input file"):
			t.Errorf("%q: %v", path, err)
		}
	}
}
