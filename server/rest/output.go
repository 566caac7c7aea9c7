package rest

import (
	"encoding/base64"
	"fmt"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// outputLine is a part of a stream as JSON, without absent values.
func outputLine(stream string, o *caissonv1.Output) []byte {
	line := make([]byte, 0, len(o.GetText())*5/4+base64.StdEncoding.EncodedLen(len(o.Data))+128)
	line = fmt.Appendf(line, `{%q:{`, stream)
	comma := ""
	if o.Offset != 0 {
		line = fmt.Appendf(line, `"offset":"%d"`, o.Offset)
		comma = ","
	}
	if o.Skipped != 0 {
		line = fmt.Appendf(line, `%s"skipped":"%d"`, comma, o.Skipped)
		comma = ","
	}
	if len(o.Data) != 0 {
		line = fmt.Appendf(line, `%s"data":"`, comma)
		line = append(base64.StdEncoding.AppendEncode(line, o.Data), '"')
		comma = ","
	}
	if o.Text != nil {
		line = fmt.Appendf(line, `%s"text":`, comma)
		line = appendString(line, *o.Text)
		comma = ","
	}
	if o.Time != nil {
		line = append(append(line, comma...), `"time":"`...)
		line = append(o.Time.AsTime().AppendFormat(line, time.RFC3339Nano), '"')
	}
	return append(line, "}}"...)
}

const hex = "0123456789abcdef"

// appendString appends s, which is valid UTF-8, as a JSON string (RFC 8259, section 7).
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	written := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[written:i]...)
		written = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[written:]...)
	return append(b, '"')
}
