package execs

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// replaySize is how much earlier output attach -t shows again, in bytes. It fills the
// screen of most programs.
const replaySize = 64 << 10

// longestQuery is the most bytes of a control sequence that can be a query. Longer ones
// carry text, such as a title or a link.
const longestQuery = 4 << 10

// replay writes the output of a command's terminal. Up to the offset until it leaves out
// queries, which the terminal of that time has answered. This terminal would answer them
// again, and its answers would be typed into the command.
type replay struct {
	io.Writer
	at, until int64

	torn bool   // the first byte may be in the middle of a control sequence
	held []byte // a control sequence that has no end yet
}

// replayed has the output of a command's terminal shown from its last replaySize bytes on,
// where latest is set, and without the queries that were made until now.
func replayed(ctx context.Context, c *api.Client, ref, id string, latest bool, o *api.AttachOptions, rio *api.IO) error {
	execs, err := c.Execs(ctx, ref)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(execs, func(e *caissonv1.Exec) bool { return e.Id == id })
	if i < 0 || !execs[i].Tty {
		return nil // Attach says what is wrong; without a terminal all output is shown
	}
	if latest {
		o.StdoutOffset = max(0, execs[i].StdoutBytes-replaySize)
	}
	r := &replay{Writer: rio.Stdout, at: o.StdoutOffset, until: execs[i].StdoutBytes, torn: o.StdoutOffset > 0}
	rio.Stdout = r
	return nil
}

// Write implements io.Writer.
func (r *replay) Write(p []byte) (int, error) {
	out := p[:0:0]
	for i, b := range p {
		if r.at+int64(i) >= r.until && len(r.held) == 0 {
			out = append(out, p[i:]...)
			break
		}
		out = r.next(out, b)
	}
	r.at += int64(len(p))
	if _, err := r.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Skip implements api.Skipper.
func (r *replay) Skip(n int64) error {
	r.at += n
	r.held, r.torn = nil, true
	return skip(r.Writer, n)
}

// next appends the output for one more byte to out.
func (r *replay) next(out []byte, b byte) []byte {
	if r.torn {
		if b != '\n' && b != esc {
			return out
		}
		r.torn = false
	}
	switch {
	case len(r.held) == 0 && b == enq:
		return out
	case len(r.held) == 0 && b != esc:
		return append(out, b)
	}
	r.held = append(r.held, b)
	switch {
	case len(r.held) > longestQuery:
	case !sequenceEnds(r.held):
		return out
	case isQuery(r.held):
		r.held = nil
		return out
	}
	out = append(out, r.held...)
	r.held = nil
	return out
}

const (
	enq = 0x05
	bel = 0x07
	esc = 0x1b
)

// sequenceEnds tells whether s, which begins with ESC, is a whole control sequence
// (ECMA-48; XTerm Control Sequences, "C1 (8-Bit) Control Characters").
func sequenceEnds(s []byte) bool {
	if len(s) < 2 {
		return false
	}
	last := s[len(s)-1]
	switch s[1] {
	case '[':
		return len(s) > 2 && (last >= '@' && last <= '~' || last < ' ')
	case ']', 'P', '_', '^', 'X': // OSC, DCS, APC, PM, SOS: strings
		return last == bel || len(s) > 3 && bytes.HasSuffix(s, []byte{esc, '\\'})
	}
	return last < ' ' || last > '/' // intermediate bytes come first
}

// isQuery tells whether a terminal answers the control sequence s (XTerm Control Sequences;
// kitty's keyboard and graphics protocols).
func isQuery(s []byte) bool {
	body := s[2:]
	switch s[1] {
	case 'Z': // DECID
		return true
	case '[':
		return isCSIQuery(body[:len(body)-1], body[len(body)-1])
	case ']': // OSC: the value of a colour, the clipboard, a font
		return bytes.Contains(body, []byte(";?"))
	case 'P': // DECRQSS, XTGETTCAP
		return bytes.HasPrefix(body, []byte("$q")) || bytes.HasPrefix(body, []byte("+q"))
	case '_': // graphics, which are not shown again
		return true
	}
	return false
}

func isCSIQuery(parameters []byte, final byte) bool {
	private := byte(0)
	if len(parameters) > 0 && parameters[0] >= '<' && parameters[0] <= '?' {
		private, parameters = parameters[0], parameters[1:]
	}
	intermediate := byte(0)
	if n := len(parameters); n > 0 && parameters[n-1] < '0' {
		intermediate, parameters = parameters[n-1], parameters[:n-1]
	}
	switch final {
	case 'c', 'n': // DA, DSR
		return true
	case 'p', 'w': // DECRQM, DECRQPSR
		return intermediate == '$'
	case 'q': // XTVERSION
		return private == '>'
	case 'u': // keyboard flags; without ? it restores the cursor
		return private == '?' || intermediate == '&'
	case 'x', 'y': // DECREQTPARM; DECRQCRA
		return intermediate == 0 || intermediate == '*'
	case 'S': // XTSMGRAPHICS
		return private == '?'
	case 't': // reports of the window
		return len(parameters) > 1 && (parameters[0] == '1' || parameters[0] == '2' && parameters[1] < '2')
	}
	return false
}
