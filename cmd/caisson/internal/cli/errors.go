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
	ExitRuntime       = 125 // caisson or its daemon failed or refused
	exitNotExecutable = 126
	exitNotFound      = 127
	ExitSignal        = 128 // plus the signal's number
)

// ExitStatus ends the program with a code and says nothing.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// ExitError ends the program with a code of its own for err.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

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
		return ExitSignal + int(syscall.SIGPIPE) // the reader of our output has closed it
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
	case a.Stream == StreamJSONL || wantsJSONL(args) && usage:
		return NewJSONL(a.Shown(a.Stdout)).Line(errorLine{view.Error}) == nil
	case a.Output == FormatJSON && !a.template || wantsJSON(args) && usage:
		return a.PrintJSON(view) == nil
	}
	return false
}

// failureView is what is printed of an error where JSON is asked for.
type failureView struct {
	Error *api.Error `json:"error"`
	*Cut             // nil where no command ran
	*Part            // nil where nothing was done
}

// partError is why not all was done.
type partError struct {
	err  error
	view Part
}

func (e *partError) Error() string { return e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// failureOf parts err from what is to be told beside it.
func failureOf(err error) (failureView, error) {
	var cut *CutError
	if errors.As(err, &cut) {
		return failureView{Error: api.Explain(cut.Err), Cut: &cut.Cut}, cut.Err
	}
	var part *partError
	if errors.As(err, &part) {
		return failureView{Error: api.Explain(part.err), Part: &part.view}, part.err
	}
	return failureView{Error: api.Explain(err)}, err
}

func exitCodeOf(err error, e *api.Error) int {
	var own *ExitError
	if errors.As(err, &own) {
		return own.Code
	}
	switch e.Code {
	case sbxerr.NotExecutable:
		return exitNotExecutable
	case sbxerr.CommandAbsent:
		return exitNotFound
	}
	return ExitRuntime
}

// errorText is an error as people read it.
func errorText(e *api.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "caisson: %s [%s]\n", Printable(e.Message), e.Code)
	if e.Cause != "" {
		fmt.Fprintf(&b, "  cause: %s\n", Printable(e.Cause))
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "  remedy: %s\n", Printable(e.Remedy))
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

// Cut is what was known of a command when its call ended before it.
type Cut struct {
	Exec   Message `json:"exec"`   // with the output that came counted
	Output Message `json:"output"` // as of a command that has finished
}

// CutError is why the call of a command ended without its result.
type CutError struct {
	Err error
	Cut Cut
}

func (e *CutError) Error() string { return e.Err.Error() }

func (e *CutError) Unwrap() error { return e.Err }
