package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// format is how a command tells its result.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

// String, Set and Type implement pflag.Value.
func (f *format) String() string { return string(*f) }

func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON:
		*f = format(s)
		return nil
	}
	if near := nearest(s, []string{string(formatTable), string(formatJSON)}); near != "" {
		return fmt.Errorf("it is not a format; did you mean %q?", near)
	}
	return fmt.Errorf("it is not a format, use table or json")
}

func (f *format) Type() string { return "format" }

// jsonSwitch is --json, the short form of -o json.
type jsonSwitch struct{ f *format }

func (j jsonSwitch) String() string { return strconv.FormatBool(j.f != nil && *j.f == formatJSON) }

func (j jsonSwitch) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err == nil && on {
		*j.f = formatJSON
	}
	return err
}

func (j jsonSwitch) Type() string { return "bool" }

// outputFlags gives cmd -o and --json.
func (a *app) outputFlags(cmd *cobra.Command) {
	cmd.Flags().VarP(&a.output, "output", "o", "output `FORMAT`: table or json")
	cmd.Flags().VarPF(jsonSwitch{&a.output}, "json", "", "short for -o json").NoOptDefVal = "true"
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // the flag is there
		[]string{string(formatTable), string(formatJSON)}, cobra.ShellCompDirectiveNoFileComp))
}

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

// printJSON writes one value, indented, to standard output.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.shown(a.stdout))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return ownOutput(err)
	}
	return nil
}

// printJSONLine prints v on one line, for a list that has no end.
func (a *app) printJSONLine(v any) error {
	return ownOutput(json.NewEncoder(a.shown(a.stdout)).Encode(v))
}

// printTable writes rows below their headings to standard output.
func (a *app) printTable(headings []string, rows [][]string) error {
	return ownOutput(writeTable(a.stdout, headings, rows))
}

func writeTable(to io.Writer, headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(headings, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush() // it keeps the first error of the writes
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
func (a *app) progress(line string) { fmt.Fprintln(a.stderr, printable(line)) }

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
