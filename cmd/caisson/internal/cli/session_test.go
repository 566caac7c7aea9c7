package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// running starts an exec and lets do be what the command does.
func running(do func(ctx context.Context, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error)) *servertest.Fake {
	started := func(ref string, req plan.ExecRequest) runtime.ExecInfo {
		return runtime.ExecInfo{ID: "e1", SandboxID: ref, PID: 7, Args: req.Args, TTY: req.TTY != nil, Stdin: req.Stdin}
	}
	var background atomic.Pointer[plan.ExecRequest]
	return &servertest.Fake{
		OnExec: func(ctx context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{ID: ref}, started(ref, req))
			return do(ctx, req, rio)
		},
		OnStartEx: func(ref string, req plan.ExecRequest) (runtime.ExecInfo, error) {
			background.Store(&req)
			return started(ref, req), nil
		},
		OnAttach: func(ctx context.Context, ref, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			req := *background.Load()
			rio.Started(runtime.Info{ID: ref}, started(ref, req))
			return do(ctx, req, rio)
		},
	}
}

func TestExecRequest(t *testing.T) {
	t.Setenv("FROM_HERE", "value")
	t.Setenv("TERM", "")
	var got plan.ExecRequest
	f := running(func(_ context.Context, req plan.ExecRequest, _ runtime.IO) (*runtime.Result, error) {
		got = req
		return &runtime.Result{ExitCode: 3}, nil
	})
	n := func(v int64) *int64 { return &v }
	second := time.Second
	tests := map[string]plan.ExecRequest{
		"exec box -- true":   {Args: []string{"true"}},
		"exec box ls -la":    {Args: []string{"ls", "-la"}},
		"exec box -- -odd":   {Args: []string{"-odd"}},
		"exec -i box -- cat": {Args: []string{"cat"}, Stdin: true},
		"exec -t box -- sh":  {Args: []string{"sh"}, TTY: &plan.WinSize{Rows: 24, Cols: 80}},
		"exec --shell box":   {Shell: "echo $HOME\n"},
		"exec -e A=b -e FROM_HERE -w /x -u 0:0 --timeout 1s --output-limit 1K box -- x": {
			Args: []string{"x"}, Env: []string{"A=b", "FROM_HERE=value"}, Cwd: "/x", User: "0:0", Timeout: &second, OutputLimit: n(1024),
		},
		"exec -m 1M --cpus 0.5 --pids 9 --ulimit nofile=64:128 --ulimit RLIMIT_CORE=0 box -- x": {
			Args: []string{"x"}, Limits: plan.ExecLimits{MemoryBytes: n(1 << 20), MilliCPU: n(500), PIDs: n(9)},
			Rlimits: []plan.Rlimit{{Name: "RLIMIT_NOFILE", Soft: 64, Hard: 128}, {Name: "RLIMIT_CORE"}},
		},
	}
	for line, want := range tests {
		got = plan.ExecRequest{}
		code, _, stderr := invoke(t, f, "echo $HOME\n", strings.Fields(line)...)
		if code != 3 || stderr != "" {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

// A command on a terminal has the caller's TERM, unless the caller chose another. The
// environment of a sandbox that stays does not get it.
func TestTERM(t *testing.T) {
	var env, kept []string
	f := running(func(_ context.Context, req plan.ExecRequest, _ runtime.IO) (*runtime.Result, error) {
		env = req.Env
		return &runtime.Result{}, nil
	})
	f.OnRun = func(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
		return f.OnExec(ctx, "box", req.Exec, rio)
	}
	f.OnCreate = func(req plan.CreateRequest) (runtime.Info, error) {
		kept = req.Env
		return runtime.Info{ID: "box"}, nil
	}
	t.Setenv("TERM", "vt220")
	for line, want := range map[string][]string{
		"exec box -- x":                  nil,
		"exec -t box -- x":               {"TERM=vt220"},
		"exec -t -e TERM=dumb box -- x":  {"TERM=dumb"},
		"run -t -- x":                    {"TERM=vt220"},
		"run -t --keep -- x":             {"TERM=vt220"},
		"run -t --keep -e A=b -- x":      {"TERM=vt220"},
		"run -t --keep -e TERM=d -- x":   nil, // the sandbox has it
		"run -t -e A=b -e TERM=x1 -- x":  {"A=b", "TERM=x1"},
		"exec -t -e A=b -e B=c box -- x": {"A=b", "B=c", "TERM=vt220"},
	} {
		env, kept = nil, nil
		if code, _, stderr := invoke(t, f, "", strings.Fields(line)...); code != 0 {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
		if !slices.Equal(env, want) || slices.Contains(kept, "TERM=vt220") {
			t.Errorf("%s: %q with the sandbox's %q, want %q", line, env, kept, want)
		}
	}
	t.Setenv("TERM", "")
	if _, _, _ = invoke(t, f, "", "exec", "-t", "box", "--", "x"); env != nil {
		t.Errorf("without one here: %q", env)
	}
}

// A command that did not end by itself is said to have been ended, and why.
func TestEndNotes(t *testing.T) {
	for want, result := range map[string]runtime.Result{
		"caisson: the command was ended by its timeout\n":                                                {ExitCode: 124, TimedOut: true, Reason: runtime.ReasonTimeout},
		"caisson: the command was ended with its sandbox, whose time was over (--ttl, --idle-timeout)\n": {ExitCode: 137, Reason: runtime.ReasonExpired},
		"caisson: the command was ended: its sandbox was removed\n":                                      {ExitCode: 143, Reason: runtime.ReasonCanceled, Cause: runtime.CauseRemoved},
		"caisson: the command was ended: the daemon stopped\n":                                           {ExitCode: 143, Reason: runtime.ReasonCanceled, Cause: runtime.CauseDaemon},
		"caisson: the sandbox ended without a word about the command\n":                                  {ExitCode: 137, Reason: runtime.ReasonLost},
		"": {ExitCode: 143, Reason: runtime.ReasonSignaled},
	} {
		if code, _, stderr := invoke(t, ends(result), "", "run", "--", "x"); code != result.ExitCode || stderr != want {
			t.Errorf("%s: %d, %q", result.Reason, code, stderr)
		}
	}
}

// What a command ran into is said by whose limit it is, and what raises that.
func TestLimitHints(t *testing.T) {
	for line, want := range map[string][2]string{
		"run -m 64M -- x":               {"the sandbox ran out of memory: -m gives it more", "the sandbox reached its limit of processes: --pids gives it more"},
		"exec box -- x":                 {"the sandbox ran out of memory: caisson update -m gives it more", "the sandbox reached its limit of processes: create it with more --pids"},
		"exec -m 16M box -- x":          {"the command ran out of its own memory: -m gives it more", "the sandbox reached its limit of processes: create it with more --pids"},
		"exec -m 16M --pids 9 box -- x": {"the command ran out of its own memory: -m gives it more", "the command reached its own limit of processes: --pids gives it more"},
		"attach box 1":                  {"the command ran out of memory: its own, or the sandbox's", "the command reached a limit of processes: its own, or the sandbox's"},
	} {
		for i, result := range []runtime.Result{{ExitCode: 137, OOMKilled: true}, {ExitCode: 1, PIDsLimitHit: true}} {
			f := ends(result)
			f.OnExec = running(func(context.Context, plan.ExecRequest, runtime.IO) (*runtime.Result, error) { return &result, nil }).OnExec
			f.OnAttach = func(_ context.Context, ref, exec string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
				rio.Started(runtime.Info{ID: ref}, runtime.ExecInfo{ID: exec, SandboxID: ref})
				return &result, nil
			}
			if _, _, stderr := invoke(t, f, "", strings.Fields(line)...); stderr != "caisson: "+want[i]+"\n" {
				t.Errorf("%s: %q, want %q", line, stderr, want[i])
			}
		}
	}
}

func TestExecRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"exec":                                "SANDBOX is missing",
		"exec box":                            "there is no command",
		"exec box -i -- cat":                  "flags come before SANDBOX",
		"exec --shell box -- x":               "exclude each other",
		"exec --shell -i box":                 "standard input is the script",
		"run --shell -- x":                    "exclude each other",
		"run --shell -i":                      "standard input is the script",
		"create --expose http":                `--expose: "http" is not a port, such as 8080`,
		"create --expose 80,-1":               `--expose: "-1" is not a port, such as 8080`,
		"run --ulimit nofile=9:8 -- x":        "SOFT up to HARD",
		"run --ttl 0s -- x":                   "is not a positive duration",
		"update --ttl 0 box":                  "5m or 2h, or never",
		"update --idle-timeout 0s box":        "is not a positive duration",
		"stop --grace never box":              "is not a duration",
		"exec -t --json box -- x":             "-t and --json exclude each other",
		"exec --stream jsonl --json box -- x": "--stream and --json exclude each other",
		"exec --stream jsonl -d box -- x":     "--stream and -d exclude each other",
		"exec --stream yaml box -- x":         "use jsonl",
		"exec --ulimit nofile=9:8 box -- x":   "SOFT up to HARD",
		"exec --ulimit nofile box -- x":       "NAME=SOFT",
		"exec --pids 0 box -- x":              "positive count",
		"kill -s NOTHING box e":               "is not a signal",
		"kill -s 65 box e":                    "is not a signal",
		"logs --offset -1 box":                "counts bytes from 0",
		"attach --stderr-offset -1 box e":     "counts bytes from 0",
		"update box":                          "nothing to update",
		"update --ttl -1s box":                "is not a positive duration",
		"create --ensure":                     "--ensure needs --name",
		"create --ensure --replace --name a":  "exclude each other",
		"logs --follow --session a":           "--follow is for one sandbox",
		"logs --tail x --session a":           `"x" is not a number of lines`,
		"create --ttl 0s":                     "is not a positive duration",
		"wait box e more":                     "one argument too many",
		"ps":                                  "SANDBOX is missing",
		"stop --grace soon box":               "is not a duration",
	} {
		if code, stdout, stderr := invoke(t, &servertest.Fake{}, "script", strings.Fields(line)...); code != cli.ExitRuntime || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
	}
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "exec", "--shell", "box"); code != cli.ExitRuntime || !strings.Contains(stderr, "is empty") {
		t.Errorf("an empty script: %d %q", code, stderr)
	}
	for _, line := range []string{"run --timeout 0 -- x", "create --ttl 5", "update --ttl -1s box", "stop --grace soon box"} {
		if _, _, stderr := invoke(t, &servertest.Fake{}, "", strings.Fields(line)...); !strings.Contains(stderr, "remedy: give a number and its unit, such as 500ms") {
			t.Errorf("%s: %q", line, stderr)
		}
	}
	large := strings.Repeat("x", specflags.MaxScript+1)
	if code, _, stderr := invoke(t, &servertest.Fake{}, large, "exec", "--shell", "box"); code != cli.ExitRuntime || !strings.Contains(stderr, "more than 131071 bytes") {
		t.Errorf("a large script: %d %q", code, stderr)
	}
}

func TestExecDetached(t *testing.T) {
	stdin := false
	f := &servertest.Fake{OnStartEx: func(ref string, req plan.ExecRequest) (runtime.ExecInfo, error) {
		stdin = req.Stdin
		return runtime.ExecInfo{ID: "e9", SandboxID: ref, Args: req.Args, State: runtime.ExecRunning}, nil
	}}
	if code, stdout, _ := invoke(t, f, "", "exec", "-d", "box", "--", "sleep", "1"); code != 0 || stdout != "e9\n" {
		t.Errorf("%d %q", code, stdout)
	}
	var v struct {
		ID, State string
		SandboxID string `json:"sandbox_id"`
	}
	_, stdout, _ := invoke(t, f, "", "exec", "-d", "--json", "box", "--", "sleep", "1")
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.ID != "e9" || v.SandboxID != "box" || v.State != "running" {
		t.Errorf("%q %v", stdout, err)
	}
	if code, _, stderr := invoke(t, f, "", "exec", "-d", "-i", "box", "--", "cat"); code != 0 || !stdin {
		t.Errorf("with an input: %d %q, %v", code, stderr, stdin)
	}
}

// TestNever: it is the word for no end wherever a time is given, and zero is none.
func TestNever(t *testing.T) {
	var made plan.CreateRequest
	var changed runtime.UpdateRequest
	f := &servertest.Fake{
		OnCreate: func(r plan.CreateRequest) (runtime.Info, error) { made = r; return runtime.Info{}, nil },
		OnUpdate: func(_ string, r runtime.UpdateRequest) (runtime.Info, error) { changed = r; return runtime.Info{}, nil },
	}
	if code, _, stderr := invoke(t, f, "", "create", "--ttl", "never", "--idle-timeout", "never"); code != 0 || *made.TTL != 0 || *made.IdleTimeout != 0 {
		t.Errorf("create: %d %q, %v, %v", code, stderr, made.TTL, made.IdleTimeout)
	}
	if code, _, stderr := invoke(t, f, "", "update", "--ttl", "never", "--idle-timeout", "never", "box"); code != 0 || *changed.TTL != 0 || *changed.IdleTimeout != 0 {
		t.Errorf("update: %d %q, %v, %v", code, stderr, changed.TTL, changed.IdleTimeout)
	}
}

// jsonLines are the lines of an output, each an object.
func jsonLines(t *testing.T, out string) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q is no object: %v", line, err)
		}
		lines = append(lines, v)
	}
	return lines
}

// TestStreamJSONL cuts a character between two pieces, sends what is no text,
// and leaves bytes out: the offsets are those of the stream.
func TestStreamJSONL(t *testing.T) {
	f := running(func(_ context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		for _, piece := range []string{"a\xc3", "\xa4b", "\xff\xfe"} {
			if _, err := io.WriteString(rio.Stdout, piece); err != nil {
				return nil, err
			}
		}
		skipper, _ := rio.Stderr.(runtime.Skipper)
		if err := skipper.Skip(100); err != nil {
			return nil, err
		}
		_, err := io.WriteString(rio.Stderr, "end\xe2") // and nothing follows
		return &runtime.Result{ExitCode: 4, MaxRSSBytes: 5}, err
	})
	code, stdout, stderr := invoke(t, f, "", "exec", "--stream", "jsonl", "box", "--", "x")
	if code != 4 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	want := []map[string]any{
		{"stdout": map[string]any{"text": "a"}},
		{"stdout": map[string]any{"data": "ww==", "offset": 1.0}},
		{"stdout": map[string]any{"data": "pA==", "offset": 2.0}},
		{"stdout": map[string]any{"text": "b", "offset": 3.0}},
		{"stdout": map[string]any{"data": "//4=", "offset": 4.0}},
		{"stderr": map[string]any{"skipped": 100.0}},
		{"stderr": map[string]any{"text": "end", "offset": 100.0}},
		{"stderr": map[string]any{"data": "4g==", "offset": 103.0}},
	}
	got := jsonLines(t, stdout)
	if len(got) != len(want)+2 || !reflect.DeepEqual(got[1:len(want)+1], want) {
		t.Fatalf("got %v", got)
	}
	isStart(t, got[0], "e1")
	if exit := got[len(want)+1]["exit"].(map[string]any); exit["usage"].(map[string]any)["max_rss_bytes"] != 5.0 || exit["exit_code"] != 4.0 {
		t.Errorf("got %v", exit)
	}
}

// isStart checks the line that says that a command runs.
func isStart(t *testing.T, line map[string]any, id string) {
	t.Helper()
	started, ok := line["started"].(map[string]any)
	if exec, ok2 := started["exec"].(map[string]any); !ok || !ok2 || started["sandbox_id"] != "box" || exec["id"] != id || exec["pid"] != 7.0 {
		t.Errorf("got %v", line)
	}
}

// TestStreamJSONLIsOneFormat: run, exec and attach say the same of their command.
func TestStreamJSONLIsOneFormat(t *testing.T) {
	say := func(rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "box"}, runtime.ExecInfo{ID: "1", SandboxID: "box", PID: 7, Args: []string{"make"}})
		return &runtime.Result{ExecID: "1"}, nil
	}
	f := &servertest.Fake{
		OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) { return say(rio) },
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			return say(rio)
		},
		OnAttach: func(_ context.Context, _, _ string, _ runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			return say(rio)
		},
	}
	for _, line := range []string{"run --stream jsonl -- make", "run -i --stream jsonl -- make", "exec --stream jsonl box -- make", "attach --stream jsonl box 1"} {
		_, stdout, stderr := invoke(t, f, "", strings.Fields(line)...)
		lines := jsonLines(t, stdout)
		if len(lines) != 2 || lines[1]["exit"].(map[string]any)["exec_id"] != "1" {
			t.Errorf("%s: %v, %q", line, lines, stderr)
		}
		isStart(t, lines[0], "1")
	}
}

func TestStreamJSONLErrors(t *testing.T) {
	f := &servertest.Fake{OnExec: func(context.Context, string, plan.ExecRequest, runtime.IO) (*runtime.Result, error) {
		return nil, sbxerr.New(sbxerr.CommandAbsent, "a.b", "no such command")
	}}
	for line, code := range map[string]int{"exec --stream jsonl box -- x": 127, "exec --stream jsonl --nothing box": 125} {
		got, stdout, stderr := invoke(t, f, "", strings.Fields(line)...)
		lines := jsonLines(t, stdout)
		if got != code || stderr != "" || len(lines) != 1 || lines[0]["error"] == nil {
			t.Errorf("%s: %d %q %q", line, got, stdout, stderr)
		}
	}
}

func TestAttachAndLogsOffsets(t *testing.T) {
	f := &servertest.Fake{
		OnAttach: func(_ context.Context, ref, exec string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{}, runtime.ExecInfo{ID: exec, SandboxID: ref})
			_, err := fmt.Fprintf(rio.Stdout, "%s %s %d %d", ref, exec, o.StdoutOffset, o.StderrOffset)
			return &runtime.Result{ExitCode: 9}, err
		},
		OnLogs: func(_ context.Context, ref string, o runtime.LogOptions, stdout, _ io.Writer) error {
			_, err := fmt.Fprintf(stdout, "%s %s %s %d %d", ref, o.Exec, o.Stream, o.StdoutOffset, o.StderrOffset)
			return err
		},
	}
	for line, want := range map[string]string{
		"attach --offset 5 --stderr-offset 6 box e1":    "9 box e1 5 6",
		"logs --exec e1 --offset 5 box":                 "0 box e1  5 0",
		"logs --exec e1 --stream stderr --offset 5 box": "0 box e1 stderr 5 5",
		"logs box": "0 box   0 0",
	} {
		if code, stdout, stderr := invoke(t, f, "", strings.Fields(line)...); fmt.Sprint(code, " ", stdout) != want {
			t.Errorf("%s: %d %q %q, want %q", line, code, stdout, stderr, want)
		}
	}
	_, stdout, _ := invoke(t, f, "", "attach", "--stream", "jsonl", "--offset", "5", "box", "e1")
	if lines := jsonLines(t, stdout); lines[1]["stdout"].(map[string]any)["offset"] != 5.0 {
		t.Errorf("got %v", lines)
	}
}

func TestKillSends(t *testing.T) {
	var got []string
	f := &servertest.Fake{OnSignal: func(ref, exec string, req runtime.SignalRequest) error {
		got = append(got, fmt.Sprint(ref, exec, int(req.Signal), req.All))
		return nil
	}}
	for _, line := range []string{"kill box e", "kill -s int box e", "kill -s SIGUSR1 --all box e", "kill -s 9 box e"} {
		if code, _, stderr := invoke(t, f, "", strings.Fields(line)...); code != 0 {
			t.Errorf("%s: %d %q", line, code, stderr)
		}
	}
	if want := []string{"boxe15 false", "boxe2 false", "boxe10 true", "boxe9 false"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestExecBrokenPipe is caisson exec box -- yes | head -1: the command is killed.
func TestExecBrokenPipe(t *testing.T) {
	killed := make(chan syscall.Signal, 1)
	f := running(func(ctx context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		for ctx.Err() == nil {
			if _, err := io.WriteString(rio.Stdout, "y\n"); err != nil {
				break
			}
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	f.OnSignal = func(_, _ string, req runtime.SignalRequest) error { killed <- req.Signal; return nil }
	cmd := command(t, f, "exec", "box", "--", "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if s := await(t, "signal", killed); s != syscall.SIGKILL {
		t.Errorf("got %v", s)
	}
	_ = cmd.Wait() // its code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
}

// openPTY returns both ends of a new terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var n int
	err = cli.Control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func lflag(t *testing.T, f *os.File) uint32 {
	t.Helper()
	var flags uint32
	if err := cli.Control(f, func(fd int) error {
		v, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			flags = v.Lflag
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return flags
}

func resize(t *testing.T, f *os.File, rows, cols uint16) {
	t.Helper()
	if err := cli.Control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTerminal runs caisson on a terminal: it is raw while the command runs,
// Ctrl-C is a byte, changes of its size arrive, and at the end, whatever that
// is, it is what it was.
func TestTerminal(t *testing.T) {
	ends := map[string]func(runtime.IO) (*runtime.Result, error){
		"exit":  func(runtime.IO) (*runtime.Result, error) { return &runtime.Result{}, nil },
		"error": func(runtime.IO) (*runtime.Result, error) { return nil, sbxerr.New(sbxerr.Engine, "a.b", "lost") },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) { testTerminal(t, end) })
	}
}

func testTerminal(t *testing.T, end func(runtime.IO) (*runtime.Result, error)) {
	master, slave := openPTY(t)
	resize(t, master, 30, 100)
	before := lflag(t, slave)
	if before&unix.ICANON == 0 {
		t.Fatal("a new terminal is not cooked: this would show nothing")
	}
	sizes := make(chan plan.WinSize, 4)
	typed := make(chan byte, 1)
	finish := make(chan struct{})
	input := servertest.NewInput()
	f := running(func(ctx context.Context, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		sizes <- *req.TTY
		b := make([]byte, 1)
		if _, err := input.Read(b); err != nil {
			return nil, err
		}
		typed <- b[0]
		select {
		case <-finish:
			return end(rio)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	f.OnInput = input.Send
	f.OnResize = func(_, _ string, size plan.WinSize) error { sizes <- size; return nil }
	cmd := command(t, f, "exec", "-it", "box", "--", "sh")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if s := await(t, "size", sizes); s != (plan.WinSize{Rows: 30, Cols: 100}) {
		t.Errorf("begins with %v", s)
	}
	if lflag(t, slave)&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Error("the terminal is not raw")
	}
	if _, err := master.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if b := await(t, "byte", typed); b != 3 {
		t.Errorf("typed %d", b)
	}
	resize(t, master, 40, 120)
	if s := await(t, "new size", sizes); s != (plan.WinSize{Rows: 40, Cols: 120}) {
		t.Errorf("changed to %v", s)
	}
	close(finish)
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	_ = await(t, "exit", waited) // it fails where the daemon did
	if after := lflag(t, slave); after != before {
		t.Errorf("the terminal was left as %#x, it was %#x; %s", after, before, &stderr)
	}
}

// TestTerminalBrokenPipe closes the output of a command on a terminal.
func TestTerminalBrokenPipe(t *testing.T) {
	_, slave := openPTY(t)
	before := lflag(t, slave)
	f := running(func(ctx context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		for ctx.Err() == nil {
			if _, err := io.WriteString(rio.Stdout, "y\n"); err != nil {
				break
			}
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	f.OnRun = func(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
		return f.OnExec(ctx, "box", req.Exec, rio)
	}
	for _, args := range [][]string{{"exec", "-it", "box", "--", "yes"}, {"run", "-it", "--", "yes"}} {
		cmd := command(t, f, args...)
		cmd.Stdin = slave
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		out.Close()
		_ = cmd.Wait() // it fails, and so it should
		if after := lflag(t, slave); after != before {
			t.Errorf("%s: the terminal was left as %#x, it was %#x", args[0], after, before)
		}
	}
}
