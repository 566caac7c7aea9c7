package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every refusal has its code, says what is wrong, and leaves nothing behind.
//
//caisson:smoke
func TestRefusals(t *testing.T) {
	file := filepath.Join(workspace(t, 0, 0), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, code, says string
		args             []string
	}{
		{"no command", "SBX-801", "", []string{}},
		{"unknown flag", "SBX-801", "--memory", []string{"--memry", "1G", "--", "true"}},
		{"unknown profile", "SBX-103", `"strict"`, []string{"--profile", "stric", "--", "true"}},
		{"unknown image", "SBX-201", `"base"`, []string{"--image", "bse", "--", "true"}},
		{"image that is nowhere near", "SBX-201", "there are: base", []string{"--image", "quite-another", "--", "true"}},
		{"network mode that is not set up", "SBX-403", "not offered", []string{"--network", "bridge", "--", "true"}},
		{"unknown network mode", "SBX-403", `"none"`, []string{"--network", "nome", "--", "true"}},
		{"egress rule", "SBX-404", "*.com", []string{"--allow", "*.com", "--", "true"}},
		{"terminal and JSON", "SBX-801", "exclude each other", []string{"-t", "--", "true"}},
		{"memory 0", "SBX-102", "512M", []string{"-m", "0", "--", "true"}},
		{"memory -1", "SBX-102", "512M", []string{"--memory=-1", "--", "true"}},
		{"memory 5XB", "SBX-102", "512M", []string{"-m", "5XB", "--", "true"}},
		{"memory too small", "SBX-102", "memory", []string{"-m", "1M", "--", "true"}},
		{"cpus 0", "SBX-102", "1.5", []string{"--cpus", "0", "--", "true"}},
		{"pids 0", "SBX-102", "pids", []string{"--pids", "0", "--", "true"}},
		{"tmpfs 0", "SBX-102", "", []string{"--tmpfs", "0", "--", "true"}},
		{"output limit 0", "SBX-102", "", []string{"--output-limit", "0", "--", "true"}},
		{"timeout 0", "SBX-102", "30s", []string{"--timeout", "0s", "--", "true"}},
		{"absent workspace", "SBX-104", "/no/such", []string{"--workspace", "/no/such", "--", "true"}},
		{"a file as workspace", "SBX-104", file, []string{"--workspace", file, "--", "true"}},
		{"the root as workspace", "SBX-104", "/", []string{"--workspace", "/", "--", "true"}},
		{"/etc as workspace", "SBX-104", "/etc", []string{"--workspace", "/etc", "--", "true"}},
		{"the daemon's state as workspace", "SBX-104", "daemon's own", []string{"--workspace", daemon.State, "--", "true"}},
		{"a parent of the daemon's root", "SBX-104", "/var/tmp", []string{"--workspace", "/var/tmp", "--", "true"}},
		{"copy-on-write workspace of /etc", "SBX-104", "/etc", []string{"--workspace", "/etc:cow", "--", "true"}},
		{"root", "SBX-205", "root inside", []string{"--user", "0", "--", "true"}},
		{"user -1", "SBX-205", "", []string{"--user=-1", "--", "true"}},
		{"user 4294967295", "SBX-205", "", []string{"--user", "4294967295", "--", "true"}},
		{"unknown user", "SBX-205", "nobody-knows", []string{"--user", "nobody-knows", "--", "true"}},
		{"cwd in /proc", "SBX-101", "/proc", []string{"--workdir", "/proc/self/fd/7", "--", "true"}},
		{"relative cwd", "SBX-101", "absolute", []string{"--workdir", "x", "--", "true"}},
		{"absent cwd", "SBX-101", "/no/such", []string{"--workdir", "/no/such", "--", "true"}},
		{"a name with a slash", "SBX-101", "../x", []string{"--name", "../x", "--", "true"}},
		{"too long a name", "SBX-101", "128", []string{"--name", strings.Repeat("x", 129), "--", "true"}},
		{"a reserved label", "SBX-101", "reserved", []string{"--label", "caisson.managed=false", "--", "true"}},
		{"large arguments", "SBX-101", "bytes", []string{"--", "echo", strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := daemon.Refused(t, tt.code, append([]string{"run", "--json"}, tt.args...)...)
			if all := f.Error.Message + f.Error.Cause + f.Error.Remedy; !strings.Contains(all, tt.says) {
				t.Errorf("the refusal does not say %q: %+v", tt.says, f.Error)
			}
		})
	}
	daemon.AwaitNoSandbox(t)
}
