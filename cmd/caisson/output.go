package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// jsonOnly gives cmd the same flags where JSON is its only form. They still
// choose the form of an error.
func (a *app) jsonOnly(cmd *cobra.Command) {
	a.outputFlags(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("output") && a.output != formatJSON {
			return usage("%s has no table, use -o json", cmd.CommandPath())
		}
		return run(cmd, args)
	}
}

// printJSON writes one value, indented, to standard output, or in the form that -o and
// --format ask for.
func (a *app) printJSON(v any) error {
	w := a.shown(a.stdout)
	switch {
	case a.template != nil:
		return a.template.print(w, v)
	case a.yaml:
		return printYAML(w, v)
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
func (a *app) printJSONLine(v any) error {
	if a.template != nil || a.yaml {
		return a.printJSON(v)
	}
	return ownOutput(json.NewEncoder(a.shown(a.stdout)).Encode(v))
}

// printTable writes rows below their headings to standard output.
func (a *app) printTable(headings []string, rows [][]string) error {
	f, ok := a.stdout.(*os.File)
	onScreen, width := ok && isTerminal(f), 0
	if onScreen && !a.wide {
		width = int((&terminal{file: f}).size().Cols)
	}
	return ownOutput(writeTable(a.stdout, headings, rows, width, onScreen))
}

// printList writes a list as what is asked for: an array, or a table.
func printList[T, V any](a *app, list []T, view func(T) V, headings []string, row func(T) []string) error {
	if a.output == formatJSON {
		return a.printJSON(each(list, view))
	}
	return a.printTable(headings, each(list, row))
}

// printLine writes one line to standard output.
func (a *app) printLine(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format+"\n", args...)
	return ownOutput(err)
}

// progress writes a line about what is going on to standard error.
func (a *app) progress(line string) {
	fmt.Fprint(a.stderr, a.cursor.below(), printable(line), a.cursor.lineEnd())
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
