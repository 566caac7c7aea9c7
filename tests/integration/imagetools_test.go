package integration

import (
	"os/exec"
	"strings"
	"testing"
)

// The image of tools holds those that the host has, and names the rest.
func TestImageTools(t *testing.T) {
	r := daemon.Run(t, "image", "tools", "host-tools")
	t.Cleanup(func() { daemon.Run(t, "image", "rm", "host-tools") })
	for name, args := range map[string][]string{"bash": {"bash", "-c", "echo works"}, "git": {"git", "--version"}, "jq": {"jq", "-n", "1"}, "ripgrep": {"rg", "--version"}} {
		there := exec.Command("dpkg-query", "-W", name).Run() == nil
		if named := strings.Contains(firstLine(r.Stderr, "not installed on this host:"), name); named == there {
			t.Errorf("%s is there: %t, and told as missing: %t:\n%s", name, there, named, r.Stderr)
		}
		if !there {
			continue
		}
		daemon.Run(t, append([]string{"run", "--image", "host-tools", "--"}, args...)...)
	}
	const npm = "/usr/lib/node_modules/npm"
	if !strings.Contains(firstLine(r.Stderr, "changed since"), ": --path "+npm) {
		return // npm of this host is as its package brought it; see TestPathOfPrograms in rootfs/fromhost
	}
	want, err := exec.Command("npm", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	daemon.Run(t, "image", "tools", "host-tools", "--path", npm)
	if got := daemon.Run(t, "run", "--image", "host-tools", "--", "npm", "--version").Stdout; got != string(want) {
		t.Errorf("npm is %q, on the host %q", got, want)
	}
}

// firstLine is the first line of text that begins so.
func firstLine(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}
