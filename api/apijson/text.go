package apijson

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Readable is m as people read it: output that is valid UTF-8 is text. Where a character
// is cut by the end of a message, the bytes of its parts are data in messages of their own.
func Readable(m proto.Message) []proto.Message {
	event, ok := m.(*caissonv1.ExecEvent)
	if !ok {
		return []proto.Message{m}
	}
	var list []proto.Message
	switch kind := event.Kind.(type) {
	case *caissonv1.ExecEvent_Stdout:
		for _, o := range texts(kind.Stdout) {
			list = append(list, &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: o}})
		}
	case *caissonv1.ExecEvent_Stderr:
		for _, o := range texts(kind.Stderr) {
			list = append(list, &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stderr{Stderr: o}})
		}
	case *caissonv1.ExecEvent_Finished:
		kind.Finished.StdoutText, kind.Finished.Stdout = Text(kind.Finished.Stdout)
		kind.Finished.StderrText, kind.Finished.Stderr = Text(kind.Finished.Stderr)
		list = append(list, m)
	default:
		list = append(list, m)
	}
	return list
}

// Text is data as text, or as it is.
func Text(data []byte) (*string, []byte) {
	if !utf8.Valid(data) {
		return nil, data
	}
	return proto.String(string(data)), nil
}

// texts splits o into at most three parts, of which the middle is text.
func texts(o *caissonv1.Output) []*caissonv1.Output {
	if len(o.Data) == 0 {
		return []*caissonv1.Output{o}
	}
	head, tail := cutCharacters(o.Data)
	middle := o.Data[head : len(o.Data)-tail]
	if len(middle) == 0 || !utf8.Valid(middle) || isControl(middle) {
		return []*caissonv1.Output{o}
	}
	var list []*caissonv1.Output
	at := o.Offset
	add := func(part *caissonv1.Output, n int) {
		if n > 0 {
			part.Offset, part.Time = at, o.Time
			list = append(list, part)
			at += int64(n)
		}
	}
	add(&caissonv1.Output{Data: o.Data[:head]}, head)
	add(&caissonv1.Output{Text: proto.String(string(middle))}, len(middle))
	add(&caissonv1.Output{Data: o.Data[len(o.Data)-tail:]}, tail)
	return list
}

// isControl reports whether p is mostly control characters, of which each takes six bytes
// as text in JSON: zeros of an archive, for example.
func isControl(p []byte) bool {
	n := 0
	for _, c := range p {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			n++
		}
	}
	return n > len(p)/2
}

// cutCharacters returns how many bytes at the beginning of p end a character, and how
// many at its end begin one.
func cutCharacters(p []byte) (head, tail int) {
	for head < min(len(p), utf8.UTFMax-1) && !utf8.RuneStart(p[head]) {
		head++
	}
	for n := 1; n < utf8.UTFMax && n <= len(p)-head; n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				tail = n
			}
			break
		}
	}
	return head, tail
}
