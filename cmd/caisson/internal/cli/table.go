package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// WriteTable writes rows below their headings, two spaces apart. Columns of numbers are
// aligned at the right. Where the table has more than width columns of the screen, the longest
// cells go on below; 0 is any width. With coloured set, states are (see stateColours).
func WriteTable(to io.Writer, headings []string, rows [][]string, width int, coloured bool) error {
	t := table.NewWriter()
	t.SetStyle(table.Style{Box: table.BoxStyle{PaddingRight: "  "}, Format: table.FormatOptions{Header: text.FormatDefault}})
	t.SuppressTrailingSpaces()
	t.AppendHeader(cells(headings))
	for _, row := range rows {
		t.AppendRow(cells(row))
	}
	columns := make([]table.ColumnConfig, len(headings))
	for n, most := range fitted(append(rows, headings), width) {
		columns[n] = table.ColumnConfig{Number: n + 1, WidthMax: most, WidthMaxEnforcer: text.WrapSoft}
		if !slices.ContainsFunc(rows, func(row []string) bool { return !isNumber(row[n]) }) {
			columns[n].Align, columns[n].AlignHeader = text.AlignRight, text.AlignRight
		}
		if coloured && slices.Contains(stateHeadings, headings[n]) {
			columns[n].Transformer = colourState
		}
	}
	t.SetColumnConfigs(columns)
	_, err := fmt.Fprintln(to, t.Render())
	return err
}

// stateHeadings are those of columns whose cells tell a state.
var stateHeadings = []string{"STATE", "STATUS", "EXIT"}

// stateColours are the colours of states; others have none.
var stateColours = map[string]text.Color{
	"running": text.FgGreen, "ok": text.FgGreen,
	"creating": text.FgYellow, "stopping": text.FgYellow, "paused": text.FgYellow, "warn": text.FgYellow,
	"fail": text.FgRed,
}

// colourState colours a state or an exit code, unless NO_COLOR or TERM ask for none.
func colourState(cell any) string {
	state := fmt.Sprint(cell)
	if colour, ok := stateColours[state]; ok {
		return colour.Sprint(state)
	}
	if code, err := strconv.Atoi(state); err == nil && code != 0 {
		return text.FgRed.Sprint(state)
	}
	return state
}

// leastColumn is the width below which no column is made narrower.
const leastColumn = 10

// fitted are the widths of the columns of rows, the widest made narrower until all of them and
// the spaces between fit into width. Without a width none has a bound.
func fitted(rows [][]string, width int) []int {
	widths := make([]int, len(rows[0]))
	if width == 0 {
		return widths
	}
	sum := 2 * (len(widths) - 1)
	for n := range widths {
		for _, row := range rows {
			widths[n] = max(widths[n], text.StringWidthWithoutEscSequences(Printable(row[n])))
		}
		sum += widths[n]
	}
	for ; sum > width; sum-- {
		widest := 0
		for n, w := range widths {
			if w > widths[widest] {
				widest = n
			}
		}
		if widths[widest] <= leastColumn {
			break
		}
		widths[widest]--
	}
	return widths
}

func cells(row []string) table.Row {
	return Each(row, func(cell string) any { return Printable(cell) })
}

// isNumber reports whether a cell is one number, with a unit or without, or none.
func isNumber(cell string) bool {
	digits := strings.TrimRight(cell, "BKMGTi%s")
	return cell == "-" || digits != "" && strings.Trim(digits, "0123456789.") == "" && len(cell) < 12
}

// AgeCell is how long ago t was: in seconds, minutes, hours or days.
func (a *App) AgeCell(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	age := max(0, a.Now().Sub(t.AsTime()))
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

// SizeCell is a size to read, with one digit after the point.
func SizeCell(n int64) string {
	const step = 1024
	if n < step {
		return strconv.FormatInt(n, 10) + "B"
	}
	size, unit := float64(n), 0
	for ; size >= step && unit < 4; unit++ {
		size /= step
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + "BKMGT"[unit:unit+1]
}

func Decimal(n int64) string { return strconv.FormatInt(n, 10) }

// How much of a text is in a table, in characters. A line of idCell of an ID and the narrow
// ones fits 80 columns; -o wide has all.
const (
	IdCell      = 12
	NameCell    = 16
	NarrowCell  = 14
	CommandCell = 40
)

// TimeCell is a time in a table.
func TimeCell(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Format(time.RFC3339)
}
