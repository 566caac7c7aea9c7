package mcp

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const (
	defaultTimeout = 2 * time.Minute
	maxTimeout     = 10 * time.Minute // of a command in the foreground
	defaultYield   = 10 * time.Second
	maxYield       = 50 * time.Second // clients give up after 60 s
	defaultShown   = 30_000
	maxShown       = 200_000
)

type bashInput struct {
	Sandbox     string            `json:"sandbox,omitempty" jsonschema:"the sandbox to run in; leave it out where the server has only one"`
	Command     string            `json:"command" jsonschema:"the script, exactly as it would be typed into bash: pipes, quotes, heredocs and several lines are fine"`
	Description string            `json:"description,omitempty" jsonschema:"the purpose, in a few words, for the person who watches"`
	Workdir     string            `json:"workdir,omitempty" jsonschema:"absolute working directory; the workspace by default"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"environment variables, added to those of the sandbox"`
	Session     string            `json:"session,omitempty" jsonschema:"commands with the same session name keep the working directory and the exported variables of those before"`
	TimeoutMS   *int64            `json:"timeout_ms,omitempty" jsonschema:"the command is killed after this time; 120000 by default, 600000 at most; a background command has none by default"`
	YieldMS     *int64            `json:"yield_ms,omitempty" jsonschema:"return after this time at the latest, while the command runs on; 10000 by default, 50000 at most"`
	Background  bool              `json:"background,omitempty" jsonschema:"return as soon as the command runs; read it with bash_output, end it with bash_kill"`
	Interactive bool              `json:"interactive,omitempty" jsonschema:"connect a standard input, written with bash_output; without it the input is empty"`
	MaxBytes    *int64            `json:"max_output_bytes,omitempty" jsonschema:"show this much of each stream; 30000 by default, 200000 at most; the whole output goes into a file of the sandbox"`
}

type bashOutput struct {
	Status      string   `json:"status" jsonschema:"exited, running, timeout, oom or killed"`
	ExitCode    *int32   `json:"exit_code,omitempty"`
	Signal      int32    `json:"signal,omitempty"`
	Stdout      string   `json:"stdout"`
	Stderr      string   `json:"stderr"`
	StdoutBytes int64    `json:"stdout_bytes" jsonschema:"written so far, also where less is shown"`
	StderrBytes int64    `json:"stderr_bytes"`
	Truncated   bool     `json:"truncated,omitempty"`
	OutputPath  string   `json:"output_path,omitempty" jsonschema:"a file of the sandbox with the whole output"`
	ID          string   `json:"id,omitempty" jsonschema:"of a command that runs on, for bash_output and bash_kill"`
	DurationMS  int64    `json:"duration_ms"`
	Notes       []string `json:"notes,omitempty"`
}

type outputInput struct {
	ID         string `json:"id" jsonschema:"the id that bash returned"`
	Stdin      string `json:"stdin,omitempty" jsonschema:"text to write to the command's input first, with its line end"`
	CloseStdin bool   `json:"close_stdin,omitempty" jsonschema:"end the command's input after that"`
	YieldMS    *int64 `json:"yield_ms,omitempty" jsonschema:"wait for the end of the command up to this time; 250 by default, 50000 at most"`
}

type killInput struct {
	ID string `json:"id" jsonschema:"the id that bash returned"`
}

type listInput struct{}

type listOutput struct {
	Commands []listed `json:"commands"`
}

type listed struct {
	ID      string `json:"id"`
	Sandbox string `json:"sandbox"`
	Command string `json:"command"`
	Running bool   `json:"running"`
}

func (s *Server) addCommandTools() {
	tool(s, &sdk.Tool{Name: "bash", Annotations: hints("Run a command", false, true, true),
		Description: "Run a shell script in the sandbox and return its output and exit code. A script that takes longer than yield_ms runs on; its id is returned, and bash_output reads on."}, s.bash)
	tool(s, &sdk.Tool{Name: "bash_output", Annotations: hints("Read a running command", false, false, true),
		Description: "Return the output of a running command since the last call, after writing stdin to it. Wait up to yield_ms for its end."}, s.bashOutput)
	tool(s, &sdk.Tool{Name: "bash_kill", Annotations: hints("Kill a running command", false, true, false),
		Description: "Kill a command with all that it started, and return the rest of its output."}, s.bashKill)
	tool(s, &sdk.Tool{Name: "bash_list", Annotations: hints("List commands", true, false, false),
		Description: "List the commands that were started and not read to their end."}, s.bashList)
}

// sessionName is what may be a part of a file's name.
var sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func (s *Server) bash(ctx context.Context, req *sdk.CallToolRequest, in bashInput) (*sdk.CallToolResult, bashOutput, error) {
	var notes []string
	ref, err := s.ref(in.Sandbox)
	if err != nil {
		return nil, bashOutput{}, err
	}
	spec, err := s.execSpec(ctx, ref, in, &notes)
	if err != nil {
		return nil, bashOutput{}, failure(err)
	}
	shown := clamp("max_output_bytes", in.MaxBytes, defaultShown, 1000, maxShown, &notes)
	yield := clampTime("yield_ms", in.YieldMS, defaultYield, maxYield, &notes)
	c := s.start(ref, in.Command, spec, in.Interactive, shown)
	if in.Background {
		yield = 0
		select {
		case <-c.started:
		case <-c.done:
		case <-ctx.Done():
		}
	}
	return s.report(ctx, req, c, yield, notes)
}

// execSpec is how the script runs.
func (s *Server) execSpec(ctx context.Context, ref string, in bashInput, notes *[]string) (*caissonv1.ExecSpec, error) {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return nil, refused("command is empty")
	case len(in.Command) > maxScript:
		return nil, refused("command has %d bytes, and %d at most are passed to a shell: write a file with write_file, and run that", len(in.Command), maxScript)
	case strings.ContainsRune(in.Command, 0):
		return nil, refused("command contains a zero byte, which no shell takes")
	case in.Session != "" && !sessionName.MatchString(in.Session):
		return nil, refused("session %q: use up to 64 letters, digits, points, underscores and hyphens", in.Session)
	}
	shell, err := s.shell(ctx, ref)
	if err != nil {
		return nil, err
	}
	spec := &caissonv1.ExecSpec{Args: args(shell, in.Command, in.Session), Env: in.Env, Workdir: in.Workdir, Stdin: in.Interactive}
	if !in.Background || in.TimeoutMS != nil {
		spec.Timeout = durationpb.New(clampTime("timeout_ms", in.TimeoutMS, defaultTimeout, maxTimeout, notes))
	}
	return spec, nil
}

func (s *Server) bashOutput(ctx context.Context, req *sdk.CallToolRequest, in outputInput) (*sdk.CallToolResult, bashOutput, error) {
	c, err := s.commands.find(in.ID)
	if err != nil {
		return nil, bashOutput{}, err
	}
	var notes []string
	if err := c.feed(in.Stdin, in.CloseStdin); err != nil {
		return nil, bashOutput{}, err
	}
	yield := clampTime("yield_ms", in.YieldMS, 250*time.Millisecond, maxYield, &notes)
	return s.report(context.WithoutCancel(ctx), req, c, yield, notes) // a reader that goes away ends no command
}

// feed writes to the command's input.
func (c *command) feed(text string, end bool) error {
	if text == "" && !end {
		return nil
	}
	if c.stdin == nil {
		return refused("command %s has no input: start it with interactive", c.id)
	}
	if text != "" {
		if _, err := c.stdin.Write([]byte(text)); err != nil {
			return refused("write to command %s: %v", c.id, err)
		}
	}
	if end {
		return c.stdin.Close()
	}
	return nil
}

func (s *Server) bashKill(ctx context.Context, req *sdk.CallToolRequest, in killInput) (*sdk.CallToolResult, bashOutput, error) {
	c, err := s.commands.find(in.ID)
	if err != nil {
		return nil, bashOutput{}, err
	}
	c.killed.Store(true)
	c.cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, bashOutput{}, context.Cause(ctx)
	}
	return s.report(ctx, req, c, 0, nil)
}

func (s *Server) bashList(context.Context, *sdk.CallToolRequest, listInput) (*sdk.CallToolResult, listOutput, error) {
	s.commands.mu.Lock()
	defer s.commands.mu.Unlock()
	out := listOutput{Commands: []listed{}}
	for _, c := range s.commands.sorted() {
		out.Commands = append(out.Commands, listed{c.id, c.ref, firstLine(c.script), !c.ended()})
	}
	return nil, out, nil
}

// clamp is a number that the client may give, within bounds. It notes what it changed.
func clamp(name string, given *int64, usual, least, most int64, notes *[]string) int64 {
	if given == nil {
		return usual
	}
	n := min(max(*given, least), most)
	if n != *given {
		*notes = append(*notes, fmt.Sprintf("%s was %d, and is %d here", name, *given, n))
	}
	return n
}

func clampTime(name string, given *int64, usual, most time.Duration, notes *[]string) time.Duration {
	return time.Duration(clamp(name, given, usual.Milliseconds(), 1, most.Milliseconds(), notes)) * time.Millisecond
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
