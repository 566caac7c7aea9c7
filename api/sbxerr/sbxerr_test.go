package sbxerr

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The codes are API: this golden file only ever grows.
func TestCodesAreStable(t *testing.T) {
	var b strings.Builder
	for _, d := range All() {
		fmt.Fprintf(&b, "%s %s %d\n", d.Code, d.Class, d.HTTP)
	}
	const golden = "testdata/codes.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the table changed; if codes were only appended, run with -update:\n%s", b.String())
	}
}

func TestRowsAreComplete(t *testing.T) {
	form := regexp.MustCompile(`^SBX-\d{3}$`)
	seen := map[Code]bool{}
	for _, d := range All() {
		if !form.MatchString(string(d.Code)) || seen[d.Code] {
			t.Errorf("%s: malformed or twice", d.Code)
		}
		seen[d.Code] = true
		if d.Summary == "" || d.Remedy == "" || d.Class == "" || d.HTTP < 400 || d.HTTP > 599 {
			t.Errorf("%s: incomplete row %+v", d.Code, d)
		}
	}
}

func TestWrap(t *testing.T) {
	if Wrap(Config, "a.b", nil) != nil || WithRemedy(Config, "a.b", nil, "x") != nil {
		t.Error("a nil cause became an error")
	}
	inner := New(Limits, "cgroups.check", "memory: %w", io.ErrUnexpectedEOF)
	outer := Wrap(Config, "oci.build", fmt.Errorf("build: %w", inner))
	for _, target := range []error{Config, Limits, io.ErrUnexpectedEOF} {
		if !errors.Is(outer, target) {
			t.Errorf("errors.Is(outer, %v) = false", target)
		}
	}
	if got, want := outer.Error(), "oci.build [SBX-101]: build: cgroups.check [SBX-102]: memory: unexpected EOF"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if Of(outer) != Config {
		t.Errorf("Of = %s, want the outermost", Of(outer))
	}
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Code
	}{
		{nil, ""},
		{io.EOF, Unknown},
		{fmt.Errorf("x: %w", Limits), Limits},
		{errors.Join(io.EOF, New(Mount, "a.b", "x")), Mount},
	} {
		if got := Of(tt.err); got != tt.want {
			t.Errorf("Of(%v) = %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestRemedyOf(t *testing.T) {
	inner := WithRemedy(ImageNotFound, "a.b", io.EOF, "do this")
	if got := RemedyOf(fmt.Errorf("x: %w", Wrap(Config, "c.d", inner))); got != "do this" {
		t.Errorf("RemedyOf = %q, want the specific one", got)
	}
	d, ok := Describe(Limits)
	if !ok || RemedyOf(Wrap(Limits, "a.b", io.EOF)) != d.Remedy {
		t.Error("the code's own remedy was not used")
	}
	if _, ok := Describe("SBX-999"); ok {
		t.Error("an unknown code was described")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"strict", "compat", "debug"}
	for word, want := range map[string]string{"stirct": "strict", "compt": "compat", "": "", "production": "", "debgu": "debug", "x": ""} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"stict", "strict", 1}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
