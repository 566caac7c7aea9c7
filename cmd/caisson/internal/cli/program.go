package cli

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// gcPercent lets the heap grow to some 32 MB before it is collected. Messages with output
// are garbage at once: with the usual 100, four fifths of the time of a stream went into
// collecting a heap of 4 MB.
const gcPercent = 800

// Form prints an object.
type Form func(object any) (string, error)

// Verb is a command below the root.
type Verb struct {
	Name    string
	Command func(*App) *cobra.Command
}

// Group is a heading of the root's help, with the verbs below it.
type Group struct {
	Title string
	Verbs []Verb
}

// Program is one that is called caisson.
type Program struct {
	Version, Commit string
	Groups          []Group

	// Whole is the name of the program that does what this one cannot: what has to do with
	// the following, which take time to load. Empty: it has all of them.
	Whole string
	// Template reads the text of --format. YAML is -o yaml.
	Template func(text string) (Form, error)
	YAML     Form
}

// Main is the program as a process.
func (p Program) Main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(p.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run is the program. It returns the exit code.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return NewApp(p, stdin, stdout, stderr).Run(ctx, args)
}

// Commands returns all commands, for manual pages.
func (p Program) Commands() *cobra.Command { return NewApp(p, nil, nil, nil).Root(nil) }
