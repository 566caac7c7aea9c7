package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicyCheckResolves: --resolve judges the addresses that the caller's resolvers give,
// and without it the answer says that none were looked up.
func TestPolicyCheckResolves(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("10.1.2.3 inner.example\n8.8.8.8 outer.example\n10.1.2.3 both.example\n8.8.8.8 both.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) (string, int) {
		caisson := daemon.Command(t.Context(), append([]string{"policy", "check"}, args...)...)
		script := `mount --bind "$0" /etc/hosts && exec "$@"`
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", script, hosts}, caisson.Args...)...)
		cmd.Env = caisson.Env
		out, _ := cmd.CombinedOutput() // the exit code says it
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"--allow inner.example inner.example", 0, "not resolved"},
		{"--resolve --allow inner.example inner.example", 1, "10.1.2.3: refused [SBX-702]"},
		{"--resolve --allow inner.example inner.example", 1, "--allow inner.example:443,private allows it"},
		{"--resolve --allow inner.example,private inner.example", 0, "10.1.2.3: allowed"},
		{"--resolve --allow outer.example outer.example", 0, "8.8.8.8: allowed"},
		{"--resolve --allow both.example both.example", 0, "10.1.2.3: refused"},
		{"--resolve inner.example", 1, "refused [SBX-701]"},
		{"--resolve --allow absent.invalid absent.invalid", 125, "[SBX-704]"},
	} {
		if out, code := check(strings.Fields(tc.args)...); code != tc.code || !strings.Contains(out, tc.says) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", tc.args, code, tc.code, tc.says, out)
		}
	}
}

// TestPolicyCheckRefusesAddresses: what no address of a name can be is refused.
func TestPolicyCheckRefusesAddresses(t *testing.T) {
	for body, want := range map[string]string{
		`{"policy":{"allow":["a.example"]},"target":"a.example","addresses":["x"]}`:              `\"x\" is no IP address`,
		`{"policy":{"allow":["a.example"]},"target":"a.example","addresses":["fe80::1%eth0"]}`:   "is no IP address",
		`{"policy":{"allow":["8.8.8.8"]},"target":"8.8.8.8","addresses":["8.8.4.4"]}`:            "addresses belong to a name",
		`{"target":"a.example","addresses":["8.8.8.8"` + strings.Repeat(`,"8.8.8.8"`, 64) + `]}`: "65 elements, at most 64",
	} {
		if status, answer := post(t, daemon, "NetworkService/CheckPolicy", body); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%.80s: %d, want %q: %s", body, status, want, answer)
		}
	}
}
