package cli

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// A table that is wider than the screen goes on below, in its widest columns, and loses nothing.
func TestTableFits(t *testing.T) {
	rows := [][]string{{"a", strings.Repeat("word ", 30), "7"}, {strings.Repeat("n", 50), "short", "100"}}
	var wide, narrow strings.Builder
	for width, to := range map[int]*strings.Builder{0: &wide, 80: &narrow} {
		if err := WriteTable(to, []string{"NAME", "REMEDY", "N"}, rows, width, false); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(wide.String(), "\n") != 3 {
		t.Errorf("without a width:\n%s", &wide)
	}
	for line := range strings.Lines(narrow.String()) {
		if len(line) > 81 || strings.Count(narrow.String(), "word") != 30 || strings.Count(narrow.String(), "n") != 50 {
			t.Errorf("%d columns:\n%s", len(line), &narrow)
		}
	}
}

// States have colours where they are asked for, and the columns stay aligned.
func TestTableColours(t *testing.T) {
	text.EnableColors() // TERM of the tests may ask for none
	headings := []string{"NAME", "STATE", "EXIT"}
	rows := [][]string{{"running", "running", "-"}, {"one", "exited", "1"}, {"zero", "exited", "0"}}
	var plain, coloured strings.Builder
	if err := WriteTable(&plain, headings, rows, 80, false); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&coloured, headings, rows, 80, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("colours that nobody asked for:\n%q", &plain)
	}
	for _, want := range []string{"\n" + `running  ` + "\x1b[32mrunning\x1b[0m", "\x1b[31m1\x1b[0m"} {
		if strings.Count(coloured.String(), want) != 1 {
			t.Errorf("no %q in\n%q", want, &coloured)
		}
	}
	if got := text.StripEscape(coloured.String()); got != plain.String() {
		t.Errorf("without its colours it is\n%s\nand not\n%s", got, &plain)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä": "plain ä", "\x1b[31m": `\x1b[31m`, "a\nb\t": `a\nb\t`, "\u202e": `\u202e`, "\x9bx": "\ufffdx",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestSizeCell(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 1572864: "1.5M", 1 << 62: "4194304.0T"} {
		if got := SizeCell(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
