package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// writeTable writes rows below their headings, two spaces apart. Columns of numbers are
// aligned at the right.
func writeTable(to io.Writer, headings []string, rows [][]string) error {
	t := table.NewWriter()
	t.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: "  "}, Format: table.FormatOptions{Header: text.FormatDefault}})
	t.SuppressTrailingSpaces()
	t.AppendHeader(cells(headings))
	for _, row := range rows {
		t.AppendRow(cells(row))
	}
	var columns []table.ColumnConfig
	for n := range headings {
		if slices.ContainsFunc(rows, func(row []string) bool { return !isNumber(row[n]) }) {
			continue
		}
		columns = append(columns, table.ColumnConfig{Number: n + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	_, err := fmt.Fprintln(to, t.Render())
	return err
}

func cells(row []string) table.Row {
	return each(row, func(cell string) any { return printable(cell) })
}

// isNumber reports whether a cell is one number, with a unit or without, or none.
func isNumber(cell string) bool {
	digits := strings.TrimRight(cell, "BKMGTi%s")
	return cell == "-" || digits != "" && strings.Trim(digits, "0123456789.") == "" && len(cell) < 12
}

// ageCell is how long ago t was: in seconds, minutes, hours or days.
func (a *app) ageCell(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	age := max(0, a.now().Sub(t.AsTime()))
	switch {
	case age < 2*time.Minute:
		return fmt.Sprintf("%ds ago", int(age.Seconds()))
	case age < 2*time.Hour:
		return fmt.Sprintf("%dm ago", int(age.Minutes()))
	case age < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(age.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(age.Hours()/24))
}
