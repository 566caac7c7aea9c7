package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	xmodule "golang.org/x/mod/module"
)

// licence is what a module's own files say.
type licence struct {
	id    string // of SPDX; empty where it is none of those that are known here
	files []string
	texts []string
}

// licences are by the name of the module.
type licences map[string]licence

// licenceFile is the name of a file that has to go with the program.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)`)

// readLicences reads those of all modules. A module without one is refused.
func readLicences(cache string, modules []module) (licences, error) {
	all := licences{}
	for _, m := range modules {
		path, err := xmodule.EscapePath(m.path)
		if err != nil {
			return nil, err
		}
		version, err := xmodule.EscapeVersion(m.version)
		if err != nil {
			return nil, err
		}
		l, err := readLicence(filepath.Join(cache, path+"@"+version))
		if err != nil {
			return nil, fmt.Errorf("licence of %s: %w", m.name(), err)
		}
		all[m.name()] = l
	}
	return all, nil
}

func readLicence(dir string) (l licence, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return l, err
		}
		l.files, l.texts = append(l.files, e.Name()), append(l.texts, string(text))
		if l.id == "" {
			l.id = identify(string(text))
		}
	}
	if len(l.files) == 0 {
		return l, fmt.Errorf("no file in %s tells it", dir)
	}
	return l, nil
}

// marks are sentences that stand in one licence only, the more special ones first.
var marks = []struct{ words, id string }{
	{"Mozilla Public License Version 2.0", "MPL-2.0"},
	{"Mozilla Public License, version 2.0", "MPL-2.0"},
	{"Apache License Version 2.0", "Apache-2.0"},
	{"CC0 1.0 Universal", "CC0-1.0"},
	{"This is free and unencumbered software released into the public domain", "Unlicense"},
	{"Permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"},
	{"Permission to use, copy, modify, and distribute this software for any purpose", "ISC"},
	{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
	{"may be used to endorse or promote products derived from", "BSD-3-Clause"},
	{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
}

func identify(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	for _, m := range marks {
		if strings.Contains(words, m.words) {
			return m.id
		}
	}
	return ""
}

// text is all of them in one, in the order of modules.
func (l licences) text(modules []module) string {
	var b strings.Builder
	b.WriteString("The programs of caisson contain the following modules. Their licences, and notices, follow.\n")
	for _, m := range modules {
		one := l[m.name()]
		for i, file := range one.files {
			fmt.Fprintf(&b, "\n%s\n%s, %s\n%s\n\n%s\n", strings.Repeat("=", 80), m.name(), file, strings.Repeat("=", 80), strings.TrimSpace(one.texts[i]))
		}
	}
	return b.String()
}
