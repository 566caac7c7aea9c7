package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

var screenTests = map[string]string{
	"plain\ttext\r\n":       "plain\ttext\r\n",
	"größe 日本 🙂":            "größe 日本 🙂",
	"\x1b]0;title\a":        `\x1b]0;title\x07`,
	"\x1b[31mred":           `\x1b[31mred`,
	"a\b\x7f\x00":           `a\x08\x7f\x00`,
	"csi \u009b2J":          `csi \u009b2J`,
	"a \u202egnp.exe\u2066": `a \u202egnp.exe\u2066`,
	"no UTF-8 \xe9\xff":     "no UTF-8 \xe9\xff",
}

func TestScreenEscapes(t *testing.T) {
	for in, want := range screenTests {
		var got bytes.Buffer
		if n, err := (&screen{w: &got}).Write([]byte(in)); err != nil || n != len(in) {
			t.Errorf("%q: wrote %d, %v", in, n, err)
		}
		if got.String() != want {
			t.Errorf("%q is shown as %q, want %q", in, got.String(), want)
		}
	}
}

// However the text is cut into writes, plain text arrives whole and no control does.
func FuzzScreenCut(f *testing.F) {
	for in := range screenTests {
		f.Add([]byte(in), uint8(1))
		f.Add([]byte(in), uint8(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		var got bytes.Buffer
		s := &screen{w: &got}
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(step)%5+1)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		harmless := true
		for data := in; len(data) > 0; {
			r, size := utf8.DecodeRune(data)
			harmless = harmless && !isControl(r)
			data = data[size:]
		}
		if harmless && !bytes.Equal(got.Bytes(), in) {
			t.Errorf("%q is shown as %q", in, got.Bytes())
		}
		for data := got.Bytes(); len(data) > 0; {
			r, size := utf8.DecodeRune(data)
			if isControl(r) {
				t.Errorf("%q is shown as %q, with %U in it", in, got.Bytes(), r)
			}
			data = data[size:]
		}
	})
}

// hostile retitles a window, reverses text and clears the screen.
const hostile = "\x1b]0;mine\a\u202e\u009b2J"

// toTerminal runs caisson with a terminal as its output, and returns what the terminal got.
func toTerminal(t *testing.T, f *servertest.Fake, args ...string) string {
	t.Helper()
	code, got := terminalRun(t, f, args...)
	if code != 0 {
		t.Fatalf("%q ended with %d: %s", args, code, got)
	}
	return got
}

func terminalRun(t *testing.T, f *servertest.Fake, args ...string) (code int, got string) {
	t.Helper()
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	master, slave := openPTY(t)
	if _, err := makeRaw(slave); err != nil { // else the terminal itself would change line ends
		t.Fatal(err)
	}
	code = whole.Run(t.Context(), args, strings.NewReader(""), slave, slave)
	slave.Close()
	all, err := io.ReadAll(master) // ends with EIO, as the other end is closed
	if len(all) == 0 {
		t.Fatal(err)
	}
	return code, string(all)
}

func TestTerminalGetsNoControls(t *testing.T) {
	f := running(func(_ context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		_, err := io.WriteString(rio.Stdout, hostile)
		return &runtime.Result{Reason: runtime.ReasonExited, StdoutBytes: int64(len(hostile))}, err
	})
	f.OnLogs = func(_ context.Context, _ string, _ runtime.LogOptions, stdout, _ io.Writer) error {
		_, err := io.WriteString(stdout, hostile)
		return err
	}
	const escaped = `\x1b]0;mine\x07\u202e\u009b2J`
	for line, want := range map[string]string{
		"exec box -- x":       escaped,
		"exec --raw box -- x": hostile,
		"exec -t box -- x":    hostile,
		"logs box":            escaped,
		"logs --raw box":      hostile,
	} {
		if got := toTerminal(t, f, strings.Fields(line)...); got != want {
			t.Errorf("%s: the terminal got %q, want %q", line, got, want)
		}
	}
	if _, stdout, _ := invoke(t, f, "", "exec", "box", "--", "x"); stdout != hostile {
		t.Errorf("a pipe got %q", stdout)
	}
	for _, line := range []string{"exec --json box -- x", "exec --stream jsonl box -- x", "logs --json box"} {
		got := toTerminal(t, f, strings.Fields(line)...)
		if strings.ContainsFunc(got, isControl) || !strings.Contains(got, `\u202e`) {
			t.Errorf("%s: the terminal got %q", line, got)
		}
		for d := json.NewDecoder(strings.NewReader(got)); ; {
			var v any
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %q is no JSON: %v", line, got, err)
			}
		}
	}
}

func TestCpWritesNoArchiveToATerminal(t *testing.T) {
	code, got := terminalRun(t, &servertest.Fake{}, "cp", "box:/etc", "-")
	if code != exitRuntime || !strings.Contains(got, "redirect") {
		t.Errorf("ended with %d: %s", code, got)
	}
}
