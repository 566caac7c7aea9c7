package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// jsonOnly gives cmd the same flags where JSON is its only form. They still
// choose the form of an error.
func (a *App) jsonOnly(cmd *cobra.Command) {
	a.outputFlags(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("output") && a.output != formatJSON {
			return Usage("%s has no table, use -o json", cmd.CommandPath())
		}
		return run(cmd, args)
	}
}

// PrintJSON writes one value, indented, to standard output, or in the form that -o and
// --format ask for.
func (a *App) PrintJSON(v any) error {
	w := a.shown(a.Stdout)
	if a.form != nil {
		text, err := a.form(v)
		if err != nil {
			return Usage("%w", err)
		}
		_, err = io.WriteString(w, text)
		return ownOutput(err)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return ownOutput(err)
	}
	return nil
}

// printJSONLine prints v on one line, for a list that has no end.
func (a *App) printJSONLine(v any) error {
	if a.form != nil {
		return a.PrintJSON(v)
	}
	return ownOutput(json.NewEncoder(a.shown(a.Stdout)).Encode(v))
}

// printTable writes rows below their headings to standard output.
func (a *App) printTable(headings []string, rows [][]string) error {
	f, ok := a.Stdout.(*os.File)
	onScreen, width := ok && isTerminal(f), 0
	if onScreen && !a.wide {
		width = int((&terminal{file: f}).size().Cols)
	}
	return ownOutput(writeTable(a.Stdout, headings, rows, width, onScreen))
}

// printList writes a list as what is asked for: an array, or a table.
func printList[T, V any](a *App, list []T, view func(T) V, headings []string, row func(T) []string) error {
	if a.output == formatJSON {
		return a.PrintJSON(each(list, view))
	}
	return a.printTable(headings, each(list, row))
}

// PrintLine writes one line to standard output.
func (a *App) PrintLine(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format+"\n", args...)
	return ownOutput(err)
}

// progress writes a line about what is going on to standard error.
func (a *App) progress(line string) {
	fmt.Fprint(a.Stderr, a.cursor.below(), printable(line), a.cursor.lineEnd())
}

func ownOutput(err error) error {
	if err == nil {
		return nil
	}
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.print", fmt.Errorf("write the output: %w", err))
}

// printable makes text safe for a terminal: names and commands come from
// others, and an escape sequence in them must not act.
func printable(s string) string {
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

// shorten cuts s to at most n runes.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// orDash fills an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
