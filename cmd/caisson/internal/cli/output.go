package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// JsonOnly gives cmd the same flags where JSON is its only form. They still
// choose the form of an error.
func (a *App) JsonOnly(cmd *cobra.Command) {
	a.OutputFlags(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("output") && a.Output != FormatJSON {
			return Usage("%s has no table, use -o json", cmd.CommandPath())
		}
		return run(cmd, args)
	}
}

// PrintJSON writes one value, indented, to standard output, or in the form that -o and
// --format ask for.
func (a *App) PrintJSON(v any) error {
	v = a.json(v)
	w := a.Shown(a.Stdout)
	if a.Form != nil {
		text, err := a.Form(v)
		if err != nil {
			return Usage("%w", err)
		}
		_, err = io.WriteString(w, text)
		return OwnOutput(err)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return OwnOutput(err)
	}
	return nil
}

// PrintJSONLine prints v on one line, for a list that has no end.
func (a *App) PrintJSONLine(v any) error {
	if a.Form != nil {
		return a.PrintJSON(v)
	}
	return OwnOutput(NewJSONL(a.Shown(a.Stdout)).Line(a.json(v)))
}

// PrintTable writes rows below their headings to standard output.
func (a *App) PrintTable(headings []string, rows [][]string) error {
	f, ok := a.Stdout.(*os.File)
	onScreen, width := ok && IsTerminal(f), 0
	if onScreen && !a.Wide {
		width = int((&Terminal{File: f}).Size().Cols)
	}
	return OwnOutput(WriteTable(a.Stdout, headings, rows, width, onScreen))
}

// json is v as encoding/json takes it.
func (a *App) json(v any) any {
	if m, ok := v.(proto.Message); ok {
		return a.Message(m)
	}
	return v
}

// PrintList writes a list as a JSON array or as a table, as -o says.
func PrintList[T proto.Message](a *App, list []T, headings []string, row func(T) []string) error {
	if a.Output == FormatJSON {
		return a.PrintJSON(Messages(a, list))
	}
	return a.PrintTable(headings, Each(list, row))
}

// PrintLine writes one line to standard output.
func (a *App) PrintLine(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format+"\n", args...)
	return OwnOutput(err)
}

// Progress writes a line about what is going on to standard error.
func (a *App) Progress(line string) {
	fmt.Fprint(a.Stderr, a.cursor.below(), Printable(line), a.cursor.lineEnd())
}

func OwnOutput(err error) error {
	if err == nil {
		return nil
	}
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.print", fmt.Errorf("write the output: %w", err))
}

// Printable makes text safe for a terminal: names and commands come from
// others, and an escape sequence in them must not act.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// Shorten cuts s to at most n runes.
func Shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// OrDash fills an empty cell.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *App) PrintLines(lines []string) error {
	for _, line := range lines {
		if err := a.PrintLine("%s", Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// Warn prints those warnings of a sandbox that are for a person.
func (a *App) Warn(warnings []string) {
	for _, w := range warnings {
		switch {
		case isClamped(w), isUnisolated(w):
			a.Progress("caisson: warning: " + w)
		case strings.HasPrefix(w, imagePicked):
			a.Progress("caisson: " + w)
		}
	}
}

// isClamped reports whether a warning is about a limit that is lower than what was asked for:
// such begin with its name. The others are for programs, which read them in the result: a
// person who got all output need not know that the daemon kept less.
func isClamped(warning string) bool {
	return strings.HasPrefix(warning, "RLIMIT_") || strings.HasPrefix(warning, "limits.")
}

// isUnisolated reports whether a warning says that a command ran without isolation.
func isUnisolated(warning string) bool { return strings.HasPrefix(warning, "isolation none") }

// imagePicked begins the note on an image that nobody named.
const imagePicked = "the image "

// SaveFile makes the file at path of what write writes. It has its name once it is whole.
func SaveFile(path string, write func(io.Writer) error) (err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return SaveError(err)
	}
	defer dir.Close()
	name := fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid())
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return SaveError(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, SaveError(dir.Remove(name)))
		}
	}()
	if err := errors.Join(write(f), SaveError(f.Close())); err != nil {
		return err
	}
	return SaveError(dir.Rename(name, filepath.Base(path)))
}

// SaveArchive writes an archive to the file at path, or to standard output where that is "-".
func (a *App) SaveArchive(path string, write func(io.Writer) error) error {
	if path == "-" {
		if OnTerminal(a.Stdout) {
			return Usage("an archive is no text for a terminal: name a file, or redirect the output")
		}
		return write(a.Stdout)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe or a device
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return SaveError(err)
		}
		return errors.Join(write(f), SaveError(f.Close()))
	}
	return SaveFile(path, write)
}

// OpenArchive opens an archive that is sent to the daemon: a file, or - for the standard input.
func (a *App) OpenArchive(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.Stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, ArchiveError(err)
	}
	return f, nil
}

func ArchiveError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.import", fmt.Errorf("read the archive: %w", err))
}

// SizeOf is the size of an archive that is a file, else 0.
func SizeOf(archive io.Reader) int64 {
	f, ok := archive.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

func SaveError(err error) error { return sbxerr.Wrap(sbxerr.ClientIO, "caisson.save", err) }
