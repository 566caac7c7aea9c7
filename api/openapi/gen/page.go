package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

const pageHead = `# Routes

Every call by plain HTTP, with the fields of its request and its answer.
[API](api.md) explains the forms. This page is made from [api/caisson/v1](../../api/caisson/v1),
as is the OpenAPI document that the daemon serves at ` + "`GET /openapi.json`" + `.

- A name such as ` + "`Limits`" + ` is a message of the last section.
- ` + "`[string]`" + ` is a list, ` + "`{string: string}`" + ` a map.
- ` + "`duration`" + `, ` + "`time`" + ` and ` + "`bytes`" + ` are strings in JSON, as are numbers from 2^53 on.
- Examples leave out ` + "`--unix-socket /run/caisson/caisson.sock`" + `, and of answers what is empty.
`

// width is what a line of the page may have, in characters.
const width = 98

func writePage(to io.Writer, files []protoreflect.FileDescriptor) error {
	examples, err := readExamples()
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	fmt.Fprint(w, pageHead)
	p := page{w: w, examples: examples}
	for _, f := range files {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			fmt.Fprintf(w, "\n## %s\n", s.Name())
			p.paragraph(comment(s))
			for j := range s.Methods().Len() {
				p.call(s.Methods().Get(j))
			}
		}
	}
	p.messages()
	return w.Flush()
}

// page writes calls, and then the messages that they name.
type page struct {
	w        *bufio.Writer
	named    []protoreflect.MessageDescriptor
	examples map[string]example // by operation
}

func (p *page) call(m protoreflect.MethodDescriptor) {
	routes := routesOf(m)
	fmt.Fprintf(p.w, "\n### %s\n\n```\n", m.Name())
	for _, r := range routes {
		fmt.Fprintf(p.w, "%s %s\n", r.route.Method, r.route.Path)
	}
	fmt.Fprint(p.w, "```\n")
	p.paragraph(comment(m))
	first := routes[0]
	switch {
	case first.route.Body != "":
		p.fields("Query, beside the raw body", first.request(), append(first.fields(), first.route.Body), nil)
	case first.takesJSON():
		p.fields("Request", first.request(), first.fields(), first.inline())
	default:
		p.fields("Query", first.request(), first.fields(), nil)
	}
	switch {
	case first.route.Response != "":
		p.paragraph("Answer: the raw bytes.")
	case m.IsStreamingServer():
		p.fields("Answer, on each line", m.Output(), nil, nil)
	default:
		p.fields("Answer", m.Output(), nil, nil)
	}
	p.example(m, first)
}

// fields writes those of m, but for some, after those of inline.
func (p *page) fields(title string, m protoreflect.MessageDescriptor, without []string, inline protoreflect.FieldDescriptor) {
	if m.Fields().Len() <= len(without) {
		return
	}
	if inline != nil {
		name := inline.Message().Name()
		if !slices.Contains(p.named, inline.Message()) {
			p.named = append(p.named, inline.Message())
		}
		title, without = fmt.Sprintf("%s, with all fields of [%s](#%s)", title, name, strings.ToLower(string(name))), append(without, string(inline.Name()))
	}
	fmt.Fprintf(p.w, "\n%s:\n\n```\n", title)
	p.block(m, without)
	fmt.Fprint(p.w, "```\n")
}

func (p *page) block(m protoreflect.MessageDescriptor, without []string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if slices.Contains(without, string(f.Name())) {
			continue
		}
		line := fmt.Sprintf("%s: %s", f.Name(), p.kind(f))
		text := told(f)
		switch {
		case text == "":
			fmt.Fprintln(p.w, line)
		case len(line)+len(text)+3 <= width:
			fmt.Fprintf(p.w, "%s — %s\n", line, text)
		default:
			fmt.Fprintln(p.w, line)
			for _, l := range wrap(text, width-4) {
				fmt.Fprintf(p.w, "    %s\n", l)
			}
		}
	}
}

// kind is how the page writes the type of f. It remembers the message that it names.
func (p *page) kind(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("{%s: %s}", p.one(f.MapKey()), p.one(f.MapValue()))
	case f.IsList():
		return "[" + p.one(f) + "]"
	}
	return p.one(f)
}

func (p *page) one(f protoreflect.FieldDescriptor) string {
	m := f.Message()
	switch {
	case m == nil:
		return f.Kind().String()
	case wellKnown(m) != nil:
		return map[string]string{"Duration": "duration", "Timestamp": "time"}[string(m.Name())]
	case !slices.Contains(p.named, m):
		p.named = append(p.named, m)
	}
	return string(m.Name())
}

// messages writes all that were named, also by each other.
func (p *page) messages() {
	fmt.Fprint(p.w, "\n## Messages\n")
	for i := 0; i < len(p.named); i++ {
		m := p.named[i]
		fmt.Fprintf(p.w, "\n### %s\n", m.Name())
		p.paragraph(comment(m))
		fmt.Fprint(p.w, "\n```\n")
		p.block(m, nil)
		fmt.Fprint(p.w, "```\n")
	}
}

func (p *page) paragraph(text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", strings.Join(wrap(text, width), "\n"))
}

// wrap breaks text into lines of at most n characters.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > n {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
