package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/settings"
)

const (
	pythonHead = `"""The options of the calls. Made by api/openapi/gen; do not edit."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from ._forms import Inputs, Rlimit, Size, Time
from .types import Mount
from .values import %s

Table = Dict[str, Tuple[str, str]]
"""The field of the request and the form, by option."""

OUTPUT_LIMIT = %d
"""The bytes that a result keeps of each stream, by default."""
`
	typescriptHead = `// The options of the calls. Made by api/openapi/gen; do not edit.
import type { Inputs, MountOptions, Rlimit, Size, Time } from '../forms.js'
import type { %s } from './values.js'

/** The field of the request and the form, by option. */
export type Table = Readonly<Record<string, readonly [path: string, form: string]>>

/** The bytes that a result keeps of each stream, by default. */
export const outputLimit = %d
`
)

// writeSDK writes the options of one SDK.
func writeSDK(to io.Writer, files []protoreflect.FileDescriptor, language string) error {
	write, known := map[string]func(*bufio.Writer, []group){"python": writePython, "typescript": writeTypeScript}[language]
	if !known {
		return fmt.Errorf("there is no SDK for %q", language)
	}
	groups, err := groupsOf(files)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	write(w, groups)
	writeRemedies(w, groups, language)
	return w.Flush()
}

func writePython(w *bufio.Writer, groups []group) {
	fmt.Fprintf(w, pythonHead, setNames(groups), settings.DefaultOutputLimit)
	for _, g := range groups {
		fmt.Fprintf(w, "\n\nclass %s(%s, total=False):\n    \"\"\"%s\"\"\"\n\n", g.name, cmp.Or(g.extends, "TypedDict"), g.doc)
		for _, o := range g.options {
			fmt.Fprintf(w, "    %s: Optional[%s]\n", pythonName(o.name), typed(o, forms[o.form].python))
			if o.doc != "" {
				lines := wrap(o.doc, width-10)
				fmt.Fprintf(w, "    \"\"\"%s\"\"\"\n", strings.Join(lines, "\n    "))
			}
		}
	}
	fmt.Fprintln(w)
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s: Table = {\n", strings.ToUpper(strings.TrimSuffix(g.name, "Options")))
		for _, o := range g.all() {
			fmt.Fprintf(w, "    %q: (%q, %q),\n", pythonName(o.name), o.path, o.form)
		}
		fmt.Fprintln(w, "}")
	}
}

// pythonName is the name of an option in Python, where some are words of the language.
func pythonName(name string) string {
	if name == "from" {
		return "from_"
	}
	return name
}

func writeTypeScript(w *bufio.Writer, groups []group) {
	fmt.Fprintf(w, typescriptHead, setNames(groups), settings.DefaultOutputLimit)
	for _, g := range groups {
		extends := ""
		if g.extends != "" {
			extends = " extends " + g.extends
		}
		fmt.Fprintf(w, "\n/** %s */\nexport interface %s%s {\n", g.doc, g.name, extends)
		for _, o := range g.options {
			if o.doc != "" {
				fmt.Fprintf(w, "  /** %s */\n", strings.Join(wrap(o.doc, width-8), "\n   * "))
			}
			fmt.Fprintf(w, "  %s?: %s\n", camel(o.name), typed(o, forms[o.form].typescript))
		}
		fmt.Fprintln(w, "}")
	}
	for _, g := range groups {
		name := strings.TrimSuffix(g.name, "Options")
		fmt.Fprintf(w, "\nexport const %sTable = {\n", strings.ToLower(name[:1])+name[1:])
		for _, o := range g.all() {
			fmt.Fprintf(w, "  %s: ['%s', '%s'],\n", camel(o.name), o.path, o.form)
		}
		fmt.Fprintf(w, "} as const satisfies Table & Record<keyof %s, unknown>\n", g.name)
	}
}

const optionsHead = `# Options of the SDKs

The options of [Python](../../sdk/python/README.md) and
[TypeScript](../../sdk/typescript/README.md), made from the API as are the types of both.
TypeScript writes them in camelCase: ` + "`idle_timeout`" + ` is ` + "`idleTimeout`" + `.
In Python ` + "`from`" + ` is ` + "`from_`" + `, as from is a word of the language.
An option that there is not, and a value that cannot be read, are refused by their name.

| Form | Value |
|---|---|
| time | seconds as a number, or text: numbers with the units h, m, s, ms, us and ns |
| | ` + "`90`, `0.25`, `'90s'`, `'1.5s'`, `'1h30m'`, `'500ms'`" + `; in Python a ` + "`timedelta`" + ` too |
| size | bytes as a number, or text with K, M, G or T in powers of 1024: ` + "`'512M'`" + ` |
| cpus | a number such as ` + "`1.5`" + ` |
| count | a whole number; ` + "`counts`" + ` is a list of them |
| text | ` + "`texts` and `rules`" + ` are lists of it, ` + "`map`" + ` has text by text |
| flag | true or false |
| workspace | ` + "`DIR[:PATH][:ro\\|cow\\|clone]`" + ` |
| mounts | a list: ` + "`Mount('volume', '/deps', 'deps')`" + ` in Python, |
| | ` + "`{ type: 'volume', source: 'deps', target: '/deps' }`" + ` in TypeScript |
| nested | true, or bounds: NestedOptions |
| inputs | contents by path, or a list of files with a mode: ` + "`Input`, `InputOptions`" + ` |
| rlimits | a bound by name, or a soft and a hard one: ` + "`{'nofile': 64}`" + `; ` + "`'unlimited'`" + ` is none |
| secrets | contents by name |
| terminal | true for 24 rows of 80, or ` + "`(rows, cols)`, `{ rows, cols }`" + ` |
`

// writeOptions writes the page of the reference.
func writeOptions(to io.Writer, files []protoreflect.FileDescriptor) error {
	groups, err := groupsOf(files)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	fmt.Fprint(w, optionsHead)
	for _, g := range groups {
		fmt.Fprintf(w, "\n## %s\n\n%s\n", g.name, g.doc)
		if g.extends != "" {
			fmt.Fprintf(w, "It has those of %s too.\n", g.extends)
		}
		fmt.Fprint(w, "\n```\n")
		for _, o := range g.options {
			fmt.Fprintf(w, "%s: %s\n", o.name, o.form)
			if o.doc != "" {
				fmt.Fprintf(w, "    %s\n", strings.Join(wrap(o.doc, width-4), "\n    "))
			}
		}
		fmt.Fprint(w, "```\n")
	}
	return w.Flush()
}
