package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// taskOutput is where the output of a command goes, and what is told at its
// start and at its end.
type taskOutput struct {
	stdout, stderr io.Writer
	start          func(*caissonv1.Exec)
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
func (a *App) taskOutput(t task) taskOutput {
	switch {
	case a.stream == streamJSONL:
		return newJSONL(a.shown(a.Stdout)).output(t.stdout0, t.stderr0, a.traced)
	case a.output == formatJSON:
		return a.objectOutput(t)
	}
	stdout, stderr := a.shown(a.Stdout), a.shown(a.Stderr)
	if t.terminal { // what its command writes is for a terminal
		stdout, stderr = a.Stdout, a.Stderr
		if f, ok := stdout.(*os.File); ok && isTerminal(f) {
			stdout = &cursorWriter{stdout, &a.cursor}
		}
	}
	stdout, stderr = &shownStream{a, "stdout", stdout}, &shownStream{a, "stderr", stderr}
	return taskOutput{stdout: stdout, stderr: stderr, start: func(*caissonv1.Exec) {}, end: func(r *caissonv1.Result) error {
		a.warn(r.Warnings)
		if note := noteOf(r, t.hints); note != "" {
			a.progress("caisson: " + note)
		}
		if line := refusedLine(r); line != "" && !a.quiet {
			a.progress("caisson: " + line)
		}
		return nil
	}}
}

// shownStream is a stream of a command of which bytes may be left out. Standard error says
// so: nothing stands for them in the stream itself.
type shownStream struct {
	app  *App
	name string
	io.Writer
}

// Skip implements api.Skipper.
func (p *shownStream) Skip(n int64) error {
	p.app.sayLeftOut(p.name, n)
	return nil
}

func (a *App) sayLeftOut(stream string, n int64) {
	if n > 0 {
		a.progress(fmt.Sprintf("caisson: %d bytes of %s are left out here: they were not kept (--output-limit, sandboxes.kept_output)", n, stream))
	}
}

// hints say what a command ran into that was out of memory, or of processes.
type hints struct{ memory, pids string }

var (
	runHints = hints{
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

// imagePicked begins the note on an image that nobody named.
const imagePicked = "the image "

// isClamped reports whether a warning is about a limit that is lower than what was asked for:
// such begin with its name. The others are for programs, which read them in the result: a
// person who got all output need not know that the daemon kept less.
func isClamped(warning string) bool {
	return strings.HasPrefix(warning, "RLIMIT_") || strings.HasPrefix(warning, "limits.")
}

// isUnisolated reports whether a warning says that a command ran without isolation.
func isUnisolated(warning string) bool { return strings.HasPrefix(warning, "isolation none") }

// warn prints those warnings of a sandbox that are for a person.
func (a *App) warn(warnings []string) {
	for _, w := range warnings {
		switch {
		case isClamped(w), isUnisolated(w):
			a.progress("caisson: warning: " + w)
		case strings.HasPrefix(w, imagePicked):
			a.progress("caisson: " + w)
		}
	}
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
	case r.ExitCode != 0 && slices.Contains(r.SandboxLimitsHit, "memory"):
		return "the sandbox ran out of memory while the command ran, with others: caisson update -m gives it more"
	case r.ExitCode != 0 && slices.Contains(r.SandboxLimitsHit, "pids"):
		return "the sandbox reached its limit of processes while the command ran, with others: create it with more --pids"
	case len(r.FullTmpfs) > 0:
		return "when the command failed, no space was left in " + strings.Join(r.FullTmpfs, ", ") + ": create the sandbox with a larger --tmpfs, or write to a workspace"
	case slices.Contains(r.LimitsHit, "disk"):
		return "when the command failed, the sandbox's disk was full, of bytes or of files: create the sandbox with a larger --disk or more --disk-inodes"
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

// streamFlags gives cmd the forms of a foreground command's output.
func (a *App) streamFlags(cmd *cobra.Command) {
	a.outputFlags(cmd)
	cmd.Flags().Var(&a.stream, "stream", "stream events in `FORMAT`: jsonl, one JSON object per line")
	a.rawFlag(cmd)
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "suppress the line about refused destinations on standard error")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.stream != "" && a.output == formatJSON {
			return Usage("--stream and --json exclude each other: one object, or one for each event")
		}
		if f := cmd.Flags().Lookup("detach"); a.stream != "" && f != nil && f.Changed {
			return Usage("--stream and -d exclude each other: nobody is left to tell")
		}
		return run(cmd, args)
	}
}
