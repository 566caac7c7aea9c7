package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

// configured puts together what a daemon with these arguments would use.
func configured(t *testing.T, args ...string) (config.Config, error) {
	t.Helper()
	f := &flags{}
	cmd := rootCommand(f)
	var c config.Config
	var err error
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err = f.config(cmd)
		return nil
	}
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, err
}

// The help fits a terminal of 80 columns.
func TestHelpFits(t *testing.T) {
	root := rootCommand(&flags{})
	for _, cmd := range append(root.Commands(), root) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil || !strings.Contains(out.String(), "--config") {
			t.Fatal(err, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// noEnvironment hides what this test's own environment sets.
func noEnvironment(t *testing.T) {
	for _, name := range []string{"CAISSON_ROOT", "CAISSON_STATE", "CAISSON_SOCKET", "CAISSON_BIN_DIR", "CAISSON_CONTAINERD_ADDRESS"} {
		t.Setenv(name, "")
	}
}

func TestPrecedence(t *testing.T) {
	noEnvironment(t)
	file := writeConfig(t, "root: /file/root\nstate: /file/state\nsocket: /file/socket\nbin_dir: /file/bin\nidle_timeout: 5m\ncontainerd: {address: /file/engine}\n")
	t.Setenv("CAISSON_ROOT", "/env/root")
	t.Setenv("CAISSON_STATE", "/env/state")
	t.Setenv("CAISSON_CONTAINERD_ADDRESS", "/env/engine")

	c, err := configured(t, "--config", file, "--root", "/flag/root", "--idle-timeout", "0", "--containerd-address=")
	if err != nil {
		t.Fatal(err)
	}
	if c.Root != "/flag/root" || c.State != "/env/state" || c.Socket != "/file/socket" || c.BinDir != "/file/bin" || c.StopGrace != config.Default().StopGrace {
		t.Errorf("settings %+v", c)
	}
	if c.IdleTimeout != 0 || c.Containerd.Address != "" {
		t.Errorf("a flag's zero lost: idle %v, engine %q", time.Duration(c.IdleTimeout), c.Containerd.Address)
	}
	c, err = configured(t, "--config", file, "--state", "/flag/state", "--socket", "/flag/socket", "--bin-dir", "/flag/bin", "--containerd-address", "/flag/engine", "--idle-timeout", "3s")
	if err != nil || c.Root != "/env/root" || c.State != "/flag/state" || c.Socket != "/flag/socket" || c.BinDir != "/flag/bin" ||
		c.Containerd.Address != "/flag/engine" || time.Duration(c.IdleTimeout) != 3*time.Second {
		t.Errorf("settings %+v, %v", c, err)
	}
}

func TestDefaults(t *testing.T) {
	noEnvironment(t)
	c, err := configured(t, "--state", "/run/other")
	if err != nil {
		t.Fatal(err)
	}
	if c.Root != config.DefaultRoot || c.Socket != "/run/other/caisson.sock" || c.Instance() != "caisson" || c.BinDir == "" {
		t.Errorf("settings %+v", c)
	}
}

func TestSettingsRefused(t *testing.T) {
	noEnvironment(t)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--config", "/no/such/file"}, []string{"/no/such/file"}}, // one that is named must be there
		{[]string{"--root="}, []string{`root: ""`}},                        // an unset variable in somebody's script
		{[]string{"--root", "relative", "--state", "also"}, []string{`"relative"`, `"also"`}},
		{[]string{"--idle-timeout", "-1s"}, []string{"must not be negative"}},
		{[]string{"--config", writeConfig(t, "profiles: {a: {memory: 1X}}\nlog: {level: loud}\n")}, []string{"profiles.a: memory: ", "log.level"}},
	} {
		_, err := configured(t, tt.args...)
		if sbxerr.Of(err) != sbxerr.DaemonConf {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v lacks %q", tt.args, err, w)
			}
		}
	}
}

// TestRefusedOnce: what is wrong is told once, without the operations that met it.
func TestRefusedOnce(t *testing.T) {
	noEnvironment(t)
	for text, want := range map[string]string{
		"peers: [{}]":                     "caissond: FILE:1: peers[0].uids: the entry is for nobody: name uids or groups [SBX-105]\n",
		"\n\nsandboxes: {max: -2}":        "caissond: FILE:3: sandboxes.max: -2 is not in 1 to 512 [SBX-105]\n",
		"network: {map: {mirror: 1.2.3}}": `caissond: FILE:1: network.map.mirror: map "mirror": "1.2.3": is not ADDRESS or ADDRESS:PORT`,
		"peers: [{uids: [no.such.user]}]": `caissond: FILE:1: peers[0]: no user "no.such.user" on this host: `,
	} {
		var errOut bytes.Buffer
		file := writeConfig(t, text)
		want = strings.Replace(want, "FILE", file, 1)
		if code := run([]string{"--bin-dir", t.TempDir(), "--config", file}, io.Discard, &errOut); code != exitRuntime || !strings.HasPrefix(errOut.String(), want) {
			t.Errorf("%s: code %d, %s", text, code, errOut.String())
		}
		if n := strings.Count(errOut.String(), "SBX-"); n != 1 {
			t.Errorf("%s: %d codes in %s", text, n, errOut.String())
		}
	}
}

func TestCommandLineRefused(t *testing.T) {
	for args, want := range map[string][]string{
		"--soket /x":                {"SBX-801", "there is no flag --soket, did you mean --socket?"},
		"--stop-all --keep-on-exit": {"SBX-801", "--stop-all and --keep-on-exit exclude each other"},
		"--frobnicate":              {"SBX-801", "there is no flag --frobnicate; caissond --help shows all"},
		"doctor --jsno":             {"SBX-801", "did you mean --json?"},
		"doctor --stat /x":          {"SBX-801", "did you mean --state?"}, // flags of all commands count
		"-Z":                        {"SBX-801", "-Z"},
		"--idle-timeout soon":       {"SBX-801", "soon"},
		"--root":                    {"SBX-801", "--root"},
		"docter":                    {"SBX-801", `"caissond" takes no argument "docter", did you mean doctor?`},
		"serve":                     {"SBX-801", `takes no argument "serve"`},
		"doctor now":                {"SBX-801", `"caissond doctor" takes no argument "now"`},
		"config-schema --x":         {"SBX-801"},
		"config-schema and more":    {"SBX-801", `"and"`},
	} {
		var out, errOut bytes.Buffer
		if code := run(strings.Fields(args), &out, &errOut); code != exitRuntime || out.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q", args, code, out.String())
		}
		for _, w := range append(want, "remedy: ") {
			if !strings.Contains(errOut.String(), w) {
				t.Errorf("%s: %q lacks %q", args, errOut.String(), w)
			}
		}
	}
}

func TestSchemaCommand(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"config-schema"}, &out, &errOut); code != 0 {
		t.Fatalf("code %d: %s", code, errOut.String())
	}
	var schema struct {
		Properties map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"root", "state", "profiles", "workspaces"} {
		if schema.Properties[key] == nil {
			t.Errorf("the schema has no %q", key)
		}
	}
}

// TestUnfitHost: an installation without programs is refused before anything
// is made, with the code that a run would fail with.
func TestUnfitHost(t *testing.T) {
	noEnvironment(t)
	dir := t.TempDir()
	args := []string{"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--bin-dir", filepath.Join(dir, "bin"), "--config", writeConfig(t, "")}
	var out, errOut bytes.Buffer
	if code := run(args, &out, &errOut); code != exitRuntime || !strings.Contains(errOut.String(), "SBX-606") {
		t.Errorf("daemon: code %d, %s", code, errOut.String())
	}
	if made, _ := os.ReadDir(dir); len(made) > 0 {
		t.Errorf("a refused start made %v", made)
	}

	errOut.Reset()
	long := append(args, "--state", filepath.Join(dir, strings.Repeat("a", 40)))
	if code := run(long, &out, &errOut); code != exitRuntime || !strings.Contains(errOut.String(), "SBX-105") || !strings.Contains(errOut.String(), "longer than 40 bytes") {
		t.Errorf("a state that is too long: code %d, %s", code, errOut.String())
	}
	if made, _ := os.ReadDir(dir); len(made) > 0 {
		t.Errorf("a refused configuration made %v", made)
	}

	errOut.Reset()
	if code := run(append(args, "doctor", "--json"), &out, &errOut); code != exitUnhealthy || errOut.Len() > 0 {
		t.Errorf("doctor: code %d, %s", code, errOut.String())
	}
	var report struct {
		OK     bool
		Checks []struct{ Name, Status, Code string }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.OK || len(report.Checks) < 5 {
		t.Errorf("report %+v, %v", report, err)
	}
	out.Reset()
	run(append(args, "doctor"), &out, &errOut)
	if text := out.String(); !strings.HasPrefix(text, "STATUS ") || !strings.Contains(text, "SBX-606") {
		t.Errorf("table:\n%s", text)
	}
}
