package execs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// taskOutput is where the output of a command goes, and what is told at its
// start and at its end.
type taskOutput struct {
	stdout, stderr io.Writer
	start          func(*caissonv1.Started)
	end            func(*caissonv1.Result) error
	// fail adds to the error of the call what else is to be told. It may be called
	// while the streams are written to. Nil adds nothing.
	fail func(error) error
}

// failed is the outcome of a call that ended with err.
func (o taskOutput) failed(err error) error {
	if o.fail == nil {
		return err
	}
	return o.fail(err)
}

// taskOutput chooses between passing output on as it comes, as it is or as
// lines of JSON, and keeping it for one object at the end.
func newTaskOutput(a *cli.App, t Task) taskOutput {
	switch {
	case a.Stream == cli.StreamJSONL:
		return newEventOutput(a, t.stdout0, t.stderr0)
	case a.Output == cli.FormatJSON:
		return newObjectOutput(a, t)
	}
	stdout, stderr := a.Shown(a.Stdout), a.Shown(a.Stderr)
	if t.Terminal { // what its command writes is for a terminal
		stdout, stderr = a.Stdout, a.Stderr
		if f, ok := stdout.(*os.File); ok && cli.IsTerminal(f) {
			stdout = a.ToTerminal(stdout)
		}
	}
	stdout, stderr = &shownStream{a, "stdout", stdout}, &shownStream{a, "stderr", stderr}
	return taskOutput{stdout: stdout, stderr: stderr, start: func(*caissonv1.Started) {}, end: func(r *caissonv1.Result) error {
		a.Warn(r.Warnings)
		if note := noteOf(r, t.Hints); note != "" {
			a.Progress("caisson: " + note)
		}
		if line := refusedLine(r); line != "" && !a.Quiet {
			a.Progress("caisson: " + line)
		}
		return nil
	}}
}

// shownStream is a stream of a command of which bytes may be left out. Standard error says
// so: nothing stands for them in the stream itself.
type shownStream struct {
	app  *cli.App
	name string
	io.Writer
}

// Skip implements api.Skipper.
func (p *shownStream) Skip(n int64) error {
	sayLeftOut(p.app, p.name, n)
	return nil
}

func sayLeftOut(a *cli.App, stream string, n int64) {
	if n > 0 {
		a.Progress(fmt.Sprintf("caisson: %d bytes of %s are left out here: they were not kept (--output-limit, sandboxes.kept_output)", n, stream))
	}
}

// hints say what a command ran into that was out of memory, or of processes.
type hints struct{ memory, pids string }

var (
	RunHints = hints{
		"the sandbox ran out of memory: -m gives it more",
		"the sandbox reached its limit of processes: --pids gives it more",
	}
	ownHints = hints{
		"the command ran out of its own memory: -m gives it more",
		"the command reached its own limit of processes: --pids gives it more",
	}
	sharedHints = hints{
		"the sandbox ran out of memory: caisson update -m gives it more",
		"the sandbox reached its limit of processes: create it with more --pids",
	}
	attachHints = hints{
		"the command ran out of memory: its own, or the sandbox's",
		"the command reached a limit of processes: its own, or the sandbox's",
	}
)

// execHints are those of a command in a sandbox that is not for it alone.
func execHints(own *caissonv1.ExecLimits) hints {
	h := sharedHints
	if own.GetMemoryBytes() > 0 {
		h.memory = ownHints.memory
	}
	if own.GetPids() > 0 {
		h.pids = ownHints.pids
	}
	return h
}

// noteOf says why a command ended, where its exit code alone does not.
func noteOf(r *caissonv1.Result, h hints) string {
	switch {
	case r.TimedOut:
		return "the command was ended by its timeout"
	case r.Reason == "expired":
		return "the command was ended with its sandbox, whose time was over (--ttl, --idle-timeout)"
	case r.Reason == "kernel_memory":
		return "the command was ended with its sandbox, which took kernel memory that no limit counts"
	case r.Reason == "canceled":
		return "the command was ended: " + canceledBy(r.Cause)
	case r.OomKilled:
		return h.memory
	case r.Reason == "lost":
		return "the sandbox ended without a word about the command"
	case r.PidsLimitHit:
		return h.pids
	case r.ExitCode != 0 && slices.Contains(r.GetSandbox().GetLimitsHit(), "memory"):
		return "the sandbox ran out of memory while the command ran, with others: caisson update -m gives it more"
	case r.ExitCode != 0 && slices.Contains(r.GetSandbox().GetLimitsHit(), "pids"):
		return "the sandbox reached its limit of processes while the command ran, with others: create it with more --pids"
	case len(r.FullTmpfs) > 0:
		return "when the command failed, no space was left in " + strings.Join(r.FullTmpfs, ", ") + ": create the sandbox with a larger --tmpfs, or write to a workspace"
	case slices.Contains(r.LimitsHit, "disk"):
		return "when the command failed, the sandbox's disk was full, of bytes or of files: create the sandbox with a larger --disk or more --disk-inodes"
	case len(r.FullVolumes) > 0:
		return "when the command failed, the volume " + strings.Join(r.FullVolumes, ", ") + " was full, of bytes or of files: remove files, or copy it to a new one of a larger --size"
	case r.ReadOnlyHint:
		return "the command perhaps wrote to the root, which is read-only: /tmp, /home and writable workspaces and mounts take files"
	}
	return ""
}

// canceledBy says what canceled a command.
func canceledBy(cause string) string {
	switch cause {
	case "stopped":
		return "its sandbox was stopped"
	case "removed":
		return "its sandbox was removed"
	case "daemon_stopped":
		return "the daemon stopped"
	case "caller_left":
		return "its caller went away"
	case "parent_ended":
		return "the sandbox that made its sandbox ended"
	}
	return "its sandbox ended; caisson events tells why"
}

// StreamFlags gives cmd the forms of a foreground command's output.
func StreamFlags(a *cli.App, cmd *cobra.Command) {
	a.OutputFlags(cmd)
	cmd.Flags().Var(&a.Stream, "stream", "stream events in `FORMAT`: jsonl, one JSON object per line")
	a.RawFlag(cmd)
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, "suppress the line about refused destinations on standard error")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Stream != "" && a.Output == cli.FormatJSON {
			return cli.Usage("--stream and --json exclude each other: one object, or one for each event")
		}
		if f := cmd.Flags().Lookup("detach"); a.Stream != "" && f != nil && f.Changed {
			return cli.Usage("--stream and -d exclude each other: nobody is left to tell")
		}
		return run(cmd, args)
	}
}

// traced is r, with the stages of the sandbox only where --trace asks for them.
func traced(a *cli.App, r *caissonv1.Result) *caissonv1.Result {
	if !a.Trace {
		r.Stages = nil
	}
	return r
}
