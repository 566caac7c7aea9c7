package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/settings"
)

// group is a set of options that both SDKs have: the fields of a message, and those of the
// messages in it that are taken apart.
type group struct {
	name      string // of its type
	doc       string
	extends   string
	inherited []option // of the type that it extends, with the paths that they have here
	options   []option
}

// all are the options with the inherited ones.
func (g group) all() []option { return slices.Concat(g.inherited, g.options) }

// option is one setting in the SDKs.
type option struct {
	name string // in snake case
	path string // of the field in the request, with dots
	form string // how a value is read: a key of forms
	doc  string
	set  *settings.Set // of its values; nil: they are open
}

// form is how the SDKs take a value.
type form struct{ python, typescript string }

// forms are all of them. The functions that read them are in _forms.py and forms.ts.
var forms = map[string]form{
	"text":      {"str", "string"},
	"flag":      {"bool", "boolean"},
	"count":     {"int", "number"},
	"size":      {"Size", "Size"},
	"cpus":      {"float", "number"},
	"time":      {"Time", "Time"},
	"texts":     {"Sequence[str]", "readonly string[]"},
	"counts":    {"Sequence[int]", "readonly number[]"},
	"map":       {"Mapping[str, str]", "Readonly<Record<string, string>>"},
	"secrets":   {"Mapping[str, Union[str, bytes]]", "Readonly<Record<string, string | Uint8Array>>"},
	"rules":     {"Sequence[str]", "readonly string[]"},
	"workspace": {"Union[str, os.PathLike[str]]", "string"},
	"mounts":    {"Sequence[Mount]", "readonly MountOptions[]"},
	"nested":    {"Union[bool, NestedOptions]", "boolean | NestedOptions"},
	"inputs":    {"Inputs", "Inputs"},
	"rlimits":   {"Mapping[str, Rlimit]", "Readonly<Record<string, Rlimit>>"},
	"terminal":  {"Union[bool, Tuple[int, int]]", "boolean | { rows: number; cols: number }"},
}

// messageForms are the forms of fields that hold messages.
var messageForms = map[protoreflect.Name]string{
	"Workspace": "workspace", "Mount": "mounts", "Nested": "nested", "Input": "inputs", "Rlimit": "rlimits",
	"WinSize": "terminal", "Rules": "rules", "Duration": "time",
}

// optionNames are the names of options that do not follow from their field.
var optionNames = map[protoreflect.Name]string{"milli_cpu": "cpus", "shm_bytes": "shm_size"}

// optionDocs explain options whose value is another than that of their field.
var optionDocs = map[protoreflect.Name]string{"milli_cpu": "A count such as 1.5."}

// ofBuilds are the settings of a sandbox that a build has.
var ofBuilds = []string{"profile", "limits", "network", "allow", "deny", "allow_ech"}

// groupsOf returns all groups. A group comes after the one that it extends.
func groupsOf(files []protoreflect.FileDescriptor) ([]group, error) {
	r := reader{files: files}
	sandbox := r.fields("SandboxSpec", "")
	exec := r.fields("ExecSpec", "", "args", "shell", "stdin", "tty")
	alone := slices.DeleteFunc(r.under("exec", exec), func(o option) bool { // those of the sandbox are the command's too
		return slices.ContainsFunc(sandbox, func(s option) bool { return s.name == o.name })
	})
	build := r.fields("BuildImageRequest", "", "name", "dockerfile", "context", "sandbox")
	build = append(build, r.under("sandbox", r.only("SandboxSpec", ofBuilds))...)
	groups := []group{
		{name: "NestedOptions", doc: "What a sandbox may give to its children all together.", options: r.fields("Nested", "")},
		{name: "SandboxOptions", doc: "What a sandbox is made of. What is not given is the profile's.", options: sandbox},
		{name: "CreateOptions", doc: "How a sandbox is made.", extends: "SandboxOptions", inherited: sandbox,
			options: r.fields("CreateRequest", "", "spec", "idempotency_key")},
		{name: "ExecOptions", doc: "How a command is run.", options: exec},
		{name: "StartOptions", doc: "How a command in the background is started.", extends: "ExecOptions", inherited: exec,
			options: r.only("ExecSpec", []string{"stdin", "tty"})},
		{name: "AloneOptions", doc: "How a command is run in a sandbox of its own.", extends: "SandboxOptions", inherited: r.under("sandbox", sandbox),
			options: append(alone, r.fields("RunSpec", "", "sandbox", "exec", "detach")...)},
		{name: "UpdateOptions", doc: "What can be changed of a sandbox.", options: r.fields("UpdateRequest", "", "ref")},
		{name: "ListOptions", doc: "Selects sandboxes: those that have all that is given.", options: r.fields("ListRequest", "", "limit", "next")},
		{name: "BuildOptions", doc: "How an image is built. Settings of a sandbox are those of each RUN.", options: build},
	}
	return groups, r.err
}

// reader makes options of messages. It keeps the first error.
type reader struct {
	files []protoreflect.FileDescriptor
	err   error
}

func (r *reader) message(name protoreflect.Name) protoreflect.MessageDescriptor {
	for _, f := range r.files {
		if m := f.Messages().ByName(name); m != nil {
			return m
		}
	}
	panic("there is no message " + name) // a name above
}

func (r *reader) only(message protoreflect.Name, names []string) []option {
	var without []string
	fields := r.message(message).Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); !slices.Contains(names, name) {
			without = append(without, name)
		}
	}
	return r.fields(message, "", without...)
}

func (r *reader) under(path string, list []option) []option {
	list = slices.Clone(list)
	for i := range list {
		list[i].path = path + "." + list[i].path
	}
	return list
}

// fields are the options of a message, but for some of its fields. Limits are taken apart.
func (r *reader) fields(message protoreflect.Name, above string, without ...string) []option {
	var list []option
	fields := r.message(message).Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if slices.Contains(without, string(f.Name())) {
			continue
		}
		path := above + string(f.Name())
		if f.Name() == "limits" {
			list = append(list, r.fields(f.Message().Name(), path+".")...)
			continue
		}
		name := cmp.Or(optionNames[f.Name()], strings.TrimSuffix(string(f.Name()), "_bytes"))
		set, _ := setOf(f)
		list = append(list, option{name, path, r.form(f), cmp.Or(optionDocs[f.Name()], sentence(told(f))), set})
	}
	return list
}

// form is that of a field.
func (r *reader) form(f protoreflect.FieldDescriptor) string {
	name := string(f.Name())
	switch {
	case f.IsMap() && f.MapValue().Kind() == protoreflect.BytesKind:
		return "secrets"
	case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
		return "map"
	case f.Message() != nil && !f.IsMap():
		if known := messageForms[f.Message().Name()]; known != "" {
			return known
		}
	case f.Kind() == protoreflect.StringKind && f.IsList():
		return "texts"
	case f.Kind() == protoreflect.StringKind:
		return "text"
	case f.Kind() == protoreflect.BoolKind && !f.IsList():
		return "flag"
	case f.Kind() == protoreflect.Uint32Kind && f.IsList():
		return "counts"
	case f.Kind() == protoreflect.Int64Kind && (strings.HasSuffix(name, "_bytes") || strings.HasSuffix(name, "_bps")):
		return "size"
	case f.Name() == "milli_cpu":
		return "cpus"
	case (f.Kind() == protoreflect.Int64Kind || f.Kind() == protoreflect.Uint32Kind) && !f.IsList():
		return "count"
	}
	r.err = cmp.Or(r.err, fmt.Errorf("the SDKs have no form for the field %s: give it one in messageForms and forms", f.FullName()))
	return ""
}

// sentence is a comment that begins with a capital letter and ends with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	if word, _, _ := strings.Cut(text, " "); strings.ToUpper(word) != word {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return strings.TrimSuffix(text, ".") + "."
}

// camel is a name of TypeScript.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i := range words[1:] {
		words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
	}
	return strings.Join(words, "")
}
