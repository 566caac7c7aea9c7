package cli

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// The exit codes that are caisson's own. All others are the command's.
const (
	exitRuntime       = 125 // caisson or its daemon failed or refused
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number
)

// ExitStatus ends the program with a code and says nothing.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// exitError ends the program with a code of its own for err.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// Usage is an error of the command line.
func Usage(format string, args ...any) error {
	return sbxerr.New(sbxerr.APIUsage, usageOp, format, args...)
}

// usageOp marks what [Usage] refused.
const usageOp = "caisson.usage"

// pointToHelp names the help of the command that was used wrongly.
func pointToHelp(cmd *cobra.Command, err error) error {
	var wrong *sbxerr.Error
	if !errors.As(err, &wrong) || wrong.Op != usageOp || wrong.Remedy != "" || cmd == nil || !cmd.HasParent() {
		return err
	}
	wrong.Remedy = cmd.CommandPath() + " --help shows the usage"
	return err
}

// finish tells err and returns the exit code.
func (a *App) finish(args []string, err error) int {
	var status ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, syscall.EPIPE):
		return exitSignal + int(syscall.SIGPIPE) // whoever read our output has left: nobody is there to tell
	}
	view, err := failureOf(err)
	if told := a.tellJSON(args, view); !told {
		fmt.Fprint(a.Stderr, a.cursor.below(), errorText(view.Error))
	}
	return exitCodeOf(err, view.Error)
}

// tellJSON prints a failure as JSON where that was asked for. It reports false where it
// was not, or where standard output takes nothing more, such as a file on a full disk.
func (a *App) tellJSON(args []string, view failureView) bool {
	usage := view.Error.Code == sbxerr.APIUsage
	switch {
	case a.stream == streamJSONL || wantsJSONL(args) && usage:
		return newJSONL(a.shown(a.Stdout)).line(errorLine{"error", view.Error}) == nil
	case a.output == formatJSON && !a.template || wantsJSON(args) && usage:
		return a.PrintJSON(view) == nil
	}
	return false
}

// failureView is what is printed of an error where JSON is asked for.
type failureView struct {
	Error     *api.Error `json:"error"`
	*cutView             // nil where no command ran
	*partView            // nil where nothing was done
}

// partView is what a call did that failed for others of what it was for.
type partView struct {
	Changed []sandboxView `json:"changed,omitempty"`
	Removed []string      `json:"removed,omitempty"`
}

// partError is why not all was done.
type partError struct {
	err  error
	view partView
}

func (e *partError) Error() string { return e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// failureOf parts err from what is to be told beside it.
func failureOf(err error) (failureView, error) {
	var cut *cutError
	if errors.As(err, &cut) {
		return failureView{Error: api.Explain(cut.err), cutView: &cut.view}, cut.err
	}
	var part *partError
	if errors.As(err, &part) {
		return failureView{Error: api.Explain(part.err), partView: &part.view}, part.err
	}
	return failureView{Error: api.Explain(err)}, err
}

func exitCodeOf(err error, e *api.Error) int {
	var own *exitError
	if errors.As(err, &own) {
		return own.code
	}
	switch e.Code {
	case sbxerr.NotExecutable:
		return exitNotExecutable
	case sbxerr.CommandAbsent:
		return exitNotFound
	}
	return exitRuntime
}

// errorText is an error as people read it.
func errorText(e *api.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "caisson: %s [%s]\n", printable(e.Message), e.Code)
	if e.Cause != "" {
		fmt.Fprintf(&b, "  cause: %s\n", printable(e.Cause))
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "  remedy: %s\n", printable(e.Remedy))
	}
	return b.String()
}

// wantsJSON finds --json and -o json on a command line that could not be
// parsed to its end.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true", "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

// wantsJSONL finds --stream jsonl in the same way.
func wantsJSONL(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--stream=jsonl", arg == "--stream" && i+1 < len(args) && args[i+1] == "jsonl":
			return true
		}
	}
	return false
}
