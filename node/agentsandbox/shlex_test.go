package agentsandbox

import (
	"errors"
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
		err  error
	}{
		{"", nil, nil},
		{" \t\r\n", nil, nil},
		{"ls  -l\n/tmp", []string{"ls", "-l", "/tmp"}, nil},
		{`sh -c 'echo "$HOME" \ | wc'`, []string{"sh", "-c", `echo "$HOME" \ | wc`}, nil},
		{`a"b c"d'e f'`, []string{"ab cde f"}, nil},
		{`"" ''`, []string{"", ""}, nil},
		{`"a\"b\\c\d\'"`, []string{`a"b\c\d\'`}, nil},
		{`a\ b \'c\\`, []string{"a b", `'c\`}, nil},
		{"a # b", []string{"a", "#", "b"}, nil},
		{"a;b && c > d *", []string{"a;b", "&&", "c", ">", "d", "*"}, nil},
		{"é 'ü ö'", []string{"é", "ü ö"}, nil},
		{`it's`, nil, errQuotation},
		{`"a`, nil, errQuotation},
		{`a\`, nil, errEscaped},
		{`"a\`, nil, errEscaped},
	} {
		got, err := split(c.line)
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v", c.line, got, err)
		}
	}
}
