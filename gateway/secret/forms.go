package secret

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// forms are how an upstream may write a value that it was sent: as it is, percent-encoded as
// in a query and as in a path, as in JSON, hexadecimal, and in base64 at each of the three
// places where it can begin in a group of three bytes, without the digits that depend on its
// neighbours; and in small letters, as in the name of a header. All of them are in the arena. The caller gives them back, also after an error.
func (a *arena) forms(value []byte) (forms [][]byte, err error) {
	add := func(size int, fill func(b []byte) int) {
		b, takeErr := a.take(size)
		if takeErr != nil {
			err = takeErr
			return
		}
		forms = append(forms, b[:fill(b)])
	}
	encoded := func(e func(dst, src []byte) int, most int) {
		add(most*len(value), func(b []byte) int { return e(b, value) })
	}
	encoded(func(dst, src []byte) int { return copy(dst, src) }, 1)
	encoded(hex.Encode, 2)
	encoded(escape("", 0, false), 2)
	encoded(escape(unreserved, '+', true), 3)
	for _, more := range []string{"", "$&+:=@", "!'()*", "!'()*$&+,/:;=@#?"} { // Go's path, encodeURIComponent, encodeURI
		encoded(escape(unreserved+more, 0, true), 3)
	}
	encoded(lower, 1)
	encoded(escapeJSON(false), 6)
	encoded(escapeJSON(true), 6)
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			add(encoding.EncodedLen(before+len(value)), func(b []byte) int { return inBase64(encoding, b, value, before) })
		}
	}
	return forms, err
}

// unreserved are the bytes that no encoder of URLs touches.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

const digits = "0123456789ABCDEF"

// escape writes all bytes but those in plain as two hexadecimal digits, after a percent sign
// if percent is set, and the space as space unless that is 0.
func escape(plain string, space byte, percent bool) func(dst, src []byte) int {
	return func(dst, src []byte) int {
		out := dst[:0]
		for _, c := range src {
			if c == ' ' && space != 0 {
				out = append(out, space)
				continue
			}
			if strings.IndexByte(plain, c) >= 0 {
				out = append(out, c)
				continue
			}
			if percent {
				out = append(out, '%')
			}
			out = append(out, digits[c>>4], digits[c&15])
		}
		return len(out)
	}
}

// lower writes small letters.
func lower(dst, src []byte) int {
	for i, c := range src {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst[i] = c
	}
	return len(src)
}

// escapeJSON writes what stands between the quotes of a JSON string. Encoders differ in
// whether they write <, > and & as numbers.
func escapeJSON(html bool) func(dst, src []byte) int {
	const small = "0123456789abcdef"
	return func(dst, src []byte) int {
		out := dst[:0]
		for _, c := range src {
			switch {
			case c == '"' || c == '\\':
				out = append(out, '\\', c)
			case html && (c == '<' || c == '>' || c == '&'):
				out = append(out, '\\', 'u', '0', '0', small[c>>4], small[c&15])
			default:
				out = append(out, c)
			}
		}
		return len(out)
	}
}

// inBase64 writes into b the digits that depend on value alone, if before bytes come first.
func inBase64(encoding *base64.Encoding, b, value []byte, before int) int {
	const group = 3
	var head [group]byte // the first group of bytes
	defer clear(head[:])
	encoding.Encode(b, head[:before+copy(head[before:], value)])
	rest := value[group-before:]
	encoding.Encode(b[4:], rest)
	first, end := 0, 4+encoding.EncodedLen(len(rest))
	if before > 0 {
		first = before + 1 // the digits with bits of what comes before
	}
	if len(rest)%group != 0 {
		end-- // the last digit has bits of what follows
	}
	n := copy(b, b[first:end])
	clear(b[n:])
	return n
}
