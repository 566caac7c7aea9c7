package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestRefused checks what never reaches the daemon.
func TestRefused(t *testing.T) {
	t.Setenv("CAISSON_SOCKET", "/nonexistent/socket")
	t.Setenv("CAISSON_UNSET_VARIABLE", "")
	if err := os.Unsetenv("CAISSON_UNSET_VARIABLE"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tests := []struct {
		args string // separated by |
		code sbxerr.Code
		want string
	}{
		{"runn|--image|x|--|true", sbxerr.APIUsage, `did you mean "run"?`},
		{"rnu", sbxerr.APIUsage, `did you mean "run"?`},
		{"--socket|/x|lss", sbxerr.APIUsage, `did you mean "ls"?`},
		{"xyzzyxyzzy", sbxerr.APIUsage, "there are: apply, attach, attach-snapshot, attach-workspace, audit, backup, bundle, capabilities, changes, clean"},
		{"image|imprt|x", sbxerr.APIUsage, `did you mean "import"?`},
		{"audit|tail|-n|x", sbxerr.APIUsage, `--lines: "x" is not a whole number`},
		{"run|--memroy|1G|--|x", sbxerr.APIUsage, "did you mean --memory?"},
		{"run|--tiemout=3s|--|x", sbxerr.APIUsage, "did you mean --timeout?"},
		{"run|--frobnicate|--|x", sbxerr.APIUsage, "run --help shows the usage"},
		{"run|-Z|--|x", sbxerr.APIUsage, "no flag -Z"},
		{"run|-iZ|--|x", sbxerr.APIUsage, "no flag -Z"},
		{"ls|--lable|a=b", sbxerr.APIUsage, "did you mean --label?"},
		{"run|-m", sbxerr.APIUsage, "--memory needs a value: memory limit SIZE"},
		{"ls|-o|jsno", sbxerr.APIUsage, `did you mean "json"?`},
		{"ls|-o|spreadsheet", sbxerr.APIUsage, "use one of table, wide, json, yaml, name"},
		{"image|import|docker-daemon:", sbxerr.APIUsage, "docker-daemon:python:3.12"},
		{"image|import|containerd:-x", sbxerr.APIUsage, "give the name of an image after the colon"},
		{"ls|--json=maybe", sbxerr.APIUsage, `"maybe"`},
		{"ls|extra", sbxerr.APIUsage, "one argument too many"},
		{"inspect", sbxerr.APIUsage, "SANDBOX is missing"},
		{"inspect|-o|table|x", sbxerr.APIUsage, "has no table"},
		{"rm", sbxerr.APIUsage, "SANDBOX is missing"},
		{"explain|1|2", sbxerr.APIUsage, "one argument too many"},
		{"explain|SBX-999", sbxerr.APIUsage, "is not an error code"},
		{"completion|bahs", sbxerr.APIUsage, "only for bash, zsh and fish"},
		{"completion|powershell", sbxerr.APIUsage, "only for bash, zsh and fish"},
		{"image|from-host|--package|x", sbxerr.APIUsage, "NAME is missing"},
		{"image|from-host|x", sbxerr.APIUsage, "nothing to collect"},
		{"image|import|--name||x", sbxerr.APIUsage, "--name is empty"},
		{"image|import|" + dir + "/absent.tar", sbxerr.ClientIO, "no such file"},

		{"policy|learn", sbxerr.APIUsage, "a command after --"},
		{"policy|learn|a|b", sbxerr.APIUsage, "a command after --"},
		{"policy|learn|a|--|b", sbxerr.APIUsage, "not both"},
		{"policy|learn|--", sbxerr.APIUsage, "there is no command"},
		{"policy|learn|--image|x|-m|1G|a", sbxerr.APIUsage, "--image, --memory: for a command"},
		{"policy|learn|-d|--|a", sbxerr.APIUsage, "no flag -d"},
		{"policy|learn|--write||--|a", sbxerr.APIUsage, "--write is empty"},
		{"run", sbxerr.APIUsage, "there is no command"},
		{"run|--", sbxerr.APIUsage, "there is no command"},
		{"run|--|", sbxerr.APIUsage, "there is no command"},
		{"run|--|echo|\xff", sbxerr.APIUsage, "not UTF-8"},
		{"run|-e|A=\xff|--|x", sbxerr.APIUsage, "not UTF-8"},
		{"run|-m|0|--|x", sbxerr.Limits, "512M"},
		{"run|-m|-1|--|x", sbxerr.Limits, "512M"},
		{"run|-m|5XB|--|x", sbxerr.Limits, "512M"},
		{"run|-m||--|x", sbxerr.Limits, "512M"},
		{"run|--cpus|0|--|x", sbxerr.Limits, "1.5"},
		{"run|--pids|0|--|x", sbxerr.Limits, "256"},
		{"run|--pids|1.5|--|x", sbxerr.Limits, "256"},
		{"run|--open-files|-1|--|x", sbxerr.Limits, "256"},
		{"run|--tmpfs|0|--|x", sbxerr.Limits, "512M"},
		{"run|--output-limit|0|--|x", sbxerr.Limits, "512M"},
		{"run|--timeout|0|--|x", sbxerr.Limits, "30s"},
		{"run|--timeout|30|--|x", sbxerr.Limits, "30s"},
		{"run|--timeout|-1s|--|x", sbxerr.Limits, "30s"},
		{"run|--image||--|x", sbxerr.APIUsage, "--image is empty"},
		{"run|--name=|--|x", sbxerr.APIUsage, "--name is empty"},
		{"run|-e|=x|--|x", sbxerr.APIUsage, "has no name"},
		{"run|-e|CAISSON_UNSET_VARIABLE|--|x", sbxerr.APIUsage, "is not set here"},
		{"run|--label|x|--|x", sbxerr.APIUsage, "K=V"},
		{"run|--label|a=1|--label|a=2|--|x", sbxerr.APIUsage, "K=V"},
		{"ls|--label|x", sbxerr.APIUsage, "K=V"},
		{"run|--workspace|" + dir + "/none|--|x", sbxerr.Workspace, "no such file"},
		{"run|--workspace|" + dir + ":cwo|--|x", sbxerr.APIUsage, `did you mean "cow"?`},
		{"run|--workspace|" + dir + ":wr|--|x", sbxerr.APIUsage, `did you mean "rw"?`},
		{"run|--workspace|" + dir + ":writable|--|x", sbxerr.APIUsage, "use rw, ro, cow or clone"},
		{"run|--workspace|:ro|--|x", sbxerr.APIUsage, "names no directory"},
		{"run|--workspace||--|x", sbxerr.APIUsage, "names no directory"},
		{"run|--mount||--|x", sbxerr.APIUsage, "no line of KEY=VALUE"},
		{"run|--mount|type=bind,src=" + dir + "/none,dst=/d|--|x", sbxerr.Workspace, "no such file"},
		{"run|--mount|type=bind,dst=/d|--|x", sbxerr.APIUsage, "source is missing"},
		{"run|--mount|type=bind,src=" + dir + "|--|x", sbxerr.APIUsage, "target is missing"},
		{"run|--mount|src=" + dir + ",dst=/d|--|x", sbxerr.APIUsage, "type is missing"},
		{"run|--mount|type=volume,dst=/d|--|x", sbxerr.APIUsage, "source is missing"},
		{"run|--mount|type=tmpfs,dst=/d,dst=/e|--|x", sbxerr.APIUsage, "given twice"},
		{"run|--mount|type=tmpfs,dst=/d,sise=1M|--|x", sbxerr.APIUsage, `there is no key "sise"; did you mean "size"?`},
		{"run|--mount|type=tmpfs,dst=/d,tmpfs-mode=700|--|x", sbxerr.APIUsage, "cannot be set"},
		{"run|--mount|type=tmpfs,dst=/d,size=x|--|x", sbxerr.Limits, "size"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := whole.Run(t.Context(), strings.Split(tt.args, "|"), nil, &out, &errOut)
			text := errOut.String()
			if code != cli.ExitRuntime || out.Len() > 0 {
				t.Errorf("exit code %d, stdout %q", code, &out)
			}
			if !strings.HasPrefix(text, "caisson: ") || !strings.Contains(text, "["+string(tt.code)+"]\n") || !strings.Contains(text, tt.want) || !strings.Contains(text, "\n  remedy: ") {
				t.Errorf("got %q, want %s and %q", text, tt.code, tt.want)
			}
		})
	}
}

// TestAllReasons checks that one refusal names everything that is wrong.
func TestAllReasons(t *testing.T) {
	var out, errOut bytes.Buffer
	whole.Run(t.Context(), strings.Fields("run -m 5XB --cpus 0 --pids x --timeout 1 --label y -- x"), nil, &out, &errOut)
	for _, want := range []string{"--memory", "--cpus", "--pids", "--timeout", "--label"} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("%s is not named in %q", want, &errOut)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	t.Setenv("CAISSON_SOCKET", "/nonexistent/socket")
	tests := map[string]sbxerr.Code{
		"runn --json":                sbxerr.APIUsage,
		"run --frob --json -- x":     sbxerr.APIUsage,
		"run --frob -o json -- x":    sbxerr.APIUsage,
		"run --json -m 0 -- x":       sbxerr.Limits,
		"run -o json -- x":           sbxerr.DaemonOff,
		"ls --output=json":           sbxerr.DaemonOff,
		"ls --socket /x --json":      sbxerr.DaemonOff,
		"version --daemon -o json":   sbxerr.DaemonOff,
		"logs -f --json x":           sbxerr.APIUsage,
		"inspect --json nobody":      sbxerr.DaemonOff,
		"image import --json /none/": sbxerr.ClientIO,
	}
	for args, want := range tests {
		var out, errOut bytes.Buffer
		code := whole.Run(t.Context(), strings.Fields(args), nil, &out, &errOut)
		var got map[string]map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Errorf("%s: %v: %q %q", args, err, &out, &errOut)
			continue
		}
		e := got["error"]
		if code != cli.ExitRuntime || len(got) != 1 || len(e) != 6 || e["code"] != string(want) || e["message"] == "" || e["remedy"] == "" || e["class"] == "" || errOut.Len() > 0 {
			t.Errorf("%s: exit code %d, %v, stderr %q", args, code, got, &errOut)
		}
	}
	for _, args := range []string{"run --frob -- sh --json", "runn -- -o json"} {
		var out, errOut bytes.Buffer
		if whole.Run(t.Context(), strings.Fields(args), nil, &out, &errOut); out.Len() > 0 {
			t.Errorf("%s: the command's own flag was taken for ours: %q", args, &out)
		}
	}
}

// TestSpecFlags checks that each flag lands where it belongs.
func TestSpecFlags(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a:b")
	link := filepath.Join(dir, "link")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(odd, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FROM_HERE", "inherited")
	var got string
	f := capture(&got)
	tests := []struct{ args, want string }{
		{"run|--|echo|a b|--json", `Args:[echo a b --json]`},
		{"run|echo|-m|x", `Args:[echo -m x]`},
		{"run|-m|1.5G|x", `MemoryBytes:1610612736`},
		{"run|--cpus|1.5|x", `MilliCPU:1500`},
		{"run|--pids|7|x", `PIDs:7`},
		{"run|--open-files|8|x", `OpenFiles:8`},
		{"run|--tmpfs|1K|x", `TmpfsBytes:1024`},
		{"run|--output-limit|2K|x", `OutputLimit:2048`},
		{"run|--timeout|90s|x", `Timeout:1m30s`},
		{"run|-e|A=b=c|-e|FROM_HERE|-e|E=|x", `Env:[A=b=c E= FROM_HERE=inherited]`},
		{"run|--label|a=b|--label|c=|x", `Labels:map[a:b c:]`},
		{"run|--image|i|--profile|p|--network|n|--name|nm|x", `Name:nm Image:i Profile:p Network:n`},
		{"run|--allow|h:1|--allow|k|x", `Allow:[h:1 k]`},
		{"run|-w|/d|-u|1:2|x", `Cwd:/d User:1:2`},
		{"run|--session|s|--task|t|-t|x", `Session:s Task:t TTY:true`},
		{"run|--workspace|" + dir + "|x", `Workspace:{Dir:` + dir + ` Mode:rw Path:}`},
		{"run|--workspace|" + dir + ":ro|x", `Workspace:{Dir:` + dir + ` Mode:ro Path:}`},
		{"run|--workspace|" + odd + "|x", `Workspace:{Dir:` + odd + ` Mode:rw Path:}`},
		{"run|--workspace|" + odd + ":ro|x", `Workspace:{Dir:` + odd + ` Mode:ro Path:}`},
		{"run|--workspace|" + dir + ":/src/app:ro|x", `Workspace:{Dir:` + dir + ` Mode:ro Path:/src/app}`},
		{"run|--workspace|" + odd + ":" + dir + "|x", `Workspace:{Dir:` + odd + ` Mode:rw Path:` + dir + `}`},
		{"run|--workspace|" + link + "|x", `Workspace:{Dir:` + link + ` Mode:rw Path:}`},
		{"run|--mount|type=bind,src=" + dir + ",dst=/d|x", "Mounts:[bind " + dir + " /d false -]"},
		{"run|--mount|type=bind,source=" + dir + ",target=/d,readonly|x", "Mounts:[bind " + dir + " /d true -]"},
		{"run|--mount|type=bind,src=" + dir + ",destination=/d,ro=false|x", "Mounts:[bind " + dir + " /d false -]"},
		{"run|--mount|type=tmpfs,dst=/d,tmpfs-size=2M|--mount|type=tmpfs,dst=/e|x", "Mounts:[tmpfs  /d false 2097152 tmpfs  /e false -]"},
		{"run|--mount|\"type=tmpfs\",\"dst=/a,b\"|x", "Mounts:[tmpfs  /a,b false -]"},
		{"run|x", `MemoryBytes:- MilliCPU:- PIDs:- OpenFiles:- TmpfsBytes:- Timeout:- OutputLimit:- Workspace:-`},
	}
	for _, tt := range tests {
		got = ""
		if code, _, stderr := invoke(t, f, "", strings.Split(tt.args, "|")...); code != 0 {
			t.Errorf("%s: exit code %d, %s", tt.args, code, stderr)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.args, got, tt.want)
		}
	}
}

// TestRelativeWorkspace checks that the path is resolved where it was typed.
func TestRelativeWorkspace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	var got string
	invoke(t, capture(&got), "", "run", "--workspace", ".", "--", "x")
	if !strings.Contains(got, "Workspace:{Dir:"+dir+" Mode:rw Path:}") {
		t.Error(got)
	}
}

func TestSecretsAreNotQuoted(t *testing.T) {
	code, stdout, stderr := invoke(t, &servertest.Fake{}, "", "run", "-e", "TOKEN=hunter2", "-e", "=hunter2", "-m", "0", "--", "x")
	if code != cli.ExitRuntime || strings.Contains(stdout+stderr, "hunter2") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
}
