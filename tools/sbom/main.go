// Command sbom writes what programs are made of: a software bill of materials in the form
// of CycloneDX, and the licences of all modules in one text.
//
//	sbom -version V -sbom FILE -licences FILE [-c NAME=VERSION=LICENCE]... PROGRAM...
//
// It reads the modules out of the programs, and the licences out of Go's module cache. The
// same programs give the same files.
package main

import (
	"cmp"
	"debug/buildinfo"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// library is a part of a program that is not Go, and that its build information does not name.
type library struct{ name, version, licence string }

func main() {
	log.SetFlags(0)
	log.SetPrefix("sbom: ")
	version := flag.String("version", "", "`version` of the programs")
	bill := flag.String("sbom", "", "write the bill to `file`")
	text := flag.String("licences", "", "write the licences to `file`")
	cache := flag.String("cache", "", "Go's module cache")
	var libraries []library
	flag.Func("c", "a linked C `library`, NAME=VERSION=LICENCE", func(value string) error {
		fields := strings.Split(value, "=")
		if len(fields) != 3 {
			return fmt.Errorf("%q is not NAME=VERSION=LICENCE", value)
		}
		libraries = append(libraries, library{fields[0], fields[1], fields[2]})
		return nil
	})
	flag.Parse()
	modules, compiler, err := modulesOf(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	licences, err := readLicences(*cache, modules)
	if err != nil {
		log.Fatal(err)
	}
	if err := writeBill(*bill, *version, compiler, modules, licences, libraries); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*text, []byte(licences.text(modules)), 0o644); err != nil {
		log.Fatal(err)
	}
}

// module is one that is linked into some of the programs.
type module struct {
	path, version, sum string
	programs           []string
}

func (m module) name() string { return m.path + "@" + m.version }

// modulesOf returns the modules of programs, sorted, and the version of Go.
func modulesOf(programs []string) (list []module, compiler string, err error) {
	known := map[string]*module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, "", err
		}
		compiler = info.GoVersion
		for _, m := range append(slices.Clone(info.Deps), &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Version == "" || m.Version == "(devel)" || strings.HasPrefix(m.Path, "github.com/caisson-run/") {
				continue // our own
			}
			key := m.Path + "@" + m.Version
			if known[key] == nil {
				known[key] = &module{path: m.Path, version: m.Version, sum: m.Sum}
			}
			known[key].programs = append(known[key].programs, filepath.Base(program))
		}
	}
	for _, m := range known {
		slices.Sort(m.programs)
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b module) int { return cmp.Compare(a.name(), b.name()) })
	return list, compiler, nil
}

func writeBill(file, version, compiler string, modules []module, licences licences, libraries []library) error {
	bom := cdx.NewBOM()
	main := component(cdx.ComponentTypeApplication, "caisson", version, "Apache-2.0")
	bom.Metadata = &cdx.Metadata{Component: &main}
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		bom.Metadata.Timestamp = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	}
	components := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(compiler, "go"), "BSD-3-Clause")}
	for _, m := range modules {
		c := component(cdx.ComponentTypeLibrary, m.path, m.version, licences[m.name()].id)
		c.PackageURL = "pkg:golang/" + m.path + "@" + m.version
		c.Properties = &[]cdx.Property{{Name: "caisson:programs", Value: strings.Join(m.programs, " ")}, {Name: "caisson:go.sum", Value: m.sum}}
		components = append(components, c)
	}
	for _, l := range libraries {
		c := component(cdx.ComponentTypeLibrary, l.name, l.version, l.licence)
		c.PackageURL = "pkg:deb/debian/" + l.name + "@" + l.version
		components = append(components, c)
	}
	bom.Components = &components
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

func component(kind cdx.ComponentType, name, version, licence string) cdx.Component {
	c := cdx.Component{Type: kind, BOMRef: name + "@" + version, Name: name, Version: version}
	if licence != "" {
		c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: licence}}}
	}
	return c
}
