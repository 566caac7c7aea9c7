package fromhost

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// commandDirs are where programs are looked for, in the order of a usual PATH.
var commandDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// libraryDirs are the directories that loaders search by themselves: glibc's of
// Debian and Red Hat, and musl's. Each library is for one architecture.
var libraryDirs = []string{"/lib/*-linux-*", "/usr/lib/*-linux-*", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}

// scan is a file that may need others.
type scan struct {
	path  string // without links
	found string // the name it was found by, from which $ORIGIN is made
	mode  fs.FileMode
	rpath []string // of what loads it
}

// object is what the dynamic loader reads of an ELF file (elf(5), ld.so(8)).
type object struct {
	class   elf.Class
	machine elf.Machine
	interp  string // the loader; empty for a library or a static program
	needed  []string
	rpath   []string // DT_RPATH, empty when there is a DT_RUNPATH
	runpath []string // DT_RUNPATH
}

// needs searches the files that were added since it was called last.
func (c *collector) needs() {
	for len(c.scans) > 0 && c.err == nil {
		s := c.scans[len(c.scans)-1]
		c.scans = c.scans[:len(c.scans)-1]
		if c.scanned[s.path] {
			continue
		}
		c.scanned[s.path] = true
		head, o := c.inspect(s.path)
		switch {
		case o != nil:
			c.objectNeeds(s, o)
		case s.mode&0o001 != 0 && bytes.HasPrefix(head, []byte("#!")):
			c.scriptNeeds(s.path, head)
		}
	}
}

// inspect reads the start of file p, and what it needs if it is an ELF file.
// What cannot be read or followed needs nothing: reading it for the image will
// say so.
func (c *collector) inspect(p string) (head []byte, o *object) {
	if o, ok := c.objects[p]; ok {
		return nil, o
	}
	f, err := openFile(c.real(p))
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }()
	head = make([]byte, maxInterpreterLine)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil
	}
	if head = head[:n]; bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		c.objects[p] = readELF(f)
	}
	return head, c.objects[p]
}

// readELF returns nil for a file that it cannot follow. The standard library is
// not made for hostile files: one that breaks it ends this process.
func readELF(r io.ReaderAt) *object {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil
	}
	o := &object{class: f.Class, machine: f.Machine}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interp, err := io.ReadAll(p.Open())
			if err != nil {
				return nil
			}
			o.interp = string(bytes.TrimRight(interp, "\x00"))
		}
	}
	list := func(tag elf.DynTag) []string {
		s, _ := f.DynString(tag) // none in an object file, a core, or a static program
		return s
	}
	dirs := func(tag elf.DynTag) []string { return filepath.SplitList(strings.Join(list(tag), ":")) }
	o.needed, o.rpath, o.runpath = list(elf.DT_NEEDED), dirs(elf.DT_RPATH), dirs(elf.DT_RUNPATH)
	if len(o.runpath) > 0 {
		o.rpath = nil
	}
	return o
}

// objectNeeds adds the loader and the libraries of an ELF file.
func (c *collector) objectNeeds(s scan, o *object) {
	if path.IsAbs(o.interp) {
		c.chain(o.interp, origin{scan: true})
	}
	var chain []string // the paths that count for what this object loads
	if len(o.runpath) == 0 {
		chain = append(expand(o.rpath, s), s.rpath...)
		chain = chain[:min(len(chain), maxSearch)]
	}
	search := slices.Concat(chain, expand(o.runpath, s))
	for _, name := range o.needed {
		found, r := c.library(name, s, o, search)
		if found == "" {
			c.left.add(leftLibrary, name+" for "+s.path)
			continue
		}
		// Queued here and not by chain, which does not know what loads it.
		c.scans = append(c.scans, scan{path: r.path, found: found, mode: r.info.Mode(), rpath: chain})
		c.chain(found, origin{})
	}
}

// maxSearch bounds the search path that libraries hand down.
const maxSearch = 64

// library finds name as ld.so(8) does, short of the environment.
func (c *collector) library(name string, s scan, o *object, search []string) (string, resolved) {
	for _, p := range c.candidates(name, s, search) {
		r, err := c.resolve(p)
		if err != nil || !r.info.Mode().IsRegular() {
			continue
		}
		if _, lib := c.inspect(r.path); lib != nil && lib.class == o.class && lib.machine == o.machine {
			return p, r
		}
	}
	return "", resolved{}
}

func (c *collector) candidates(name string, s scan, search []string) []string {
	if strings.Contains(name, "/") {
		return expand([]string{name}, s)
	}
	var all []string
	for _, dir := range search {
		all = append(all, dir+"/"+name)
	}
	if c.cache != nil {
		for _, e := range c.cache.entries {
			if e.name == name {
				all = append(all, e.path)
			}
		}
	}
	for _, pattern := range libraryDirs {
		dirs, _ := filepath.Glob(c.real(pattern)) // the patterns are well-formed
		for _, dir := range dirs {
			all = append(all, dir[len(c.root):]+"/"+name)
		}
	}
	return all
}

// expand replaces $ORIGIN of ld.so(8). A directory with another token depends on
// how the loader was built, or has a twin without, and is dropped.
func expand(dirs []string, s scan) []string {
	origin := strings.NewReplacer("${ORIGIN}", path.Dir(s.found), "$ORIGIN", path.Dir(s.found))
	var all []string
	for _, d := range dirs {
		if d = origin.Replace(d); path.IsAbs(d) && !strings.Contains(d, "$") {
			all = append(all, d)
		}
	}
	return all
}

// maxInterpreterLine is how much of a script the kernel looks at
// (BINPRM_BUF_SIZE, execve(2)).
const maxInterpreterLine = 256

// interpreter returns the program of a "#!" line, and the command that it
// looks up itself if it is env(1).
func interpreter(head []byte) (program, command string) {
	line, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("#!")), []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 || !path.IsAbs(words[0]) {
		return "", ""
	}
	program = words[0]
	if path.Base(program) != "env" {
		return program, ""
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return program, w
		}
	}
	return program, ""
}

// scriptNeeds adds what runs script p.
func (c *collector) scriptNeeds(p string, head []byte) {
	program, command := interpreter(head)
	if program == "" {
		return
	}
	c.program(program, p)
	switch at := c.command(command); {
	case command == "":
	case path.IsAbs(command):
		c.program(command, p)
	case at == "":
		c.left.add(leftInterpreter, command+" for "+p)
	default:
		c.program(at, p)
	}
}

// command finds a program by its name, and returns "" where there is none.
func (c *collector) command(name string) string {
	for _, dir := range commandDirs {
		p := path.Join(dir, name)
		if r, err := c.resolve(p); err == nil && r.info.Mode().IsRegular() && r.info.Mode()&0o001 != 0 {
			return p
		}
	}
	return ""
}

// program adds the program at p with its libraries and, since an interpreter is
// little without its modules, the package that it comes from.
func (c *collector) program(p, by string) {
	r, err := c.resolve(p)
	if err != nil || !r.info.Mode().IsRegular() {
		c.left.add(leftInterpreter, p+" for "+by)
		return
	}
	if c.set[r.path] == nil {
		c.ownerOf(r.path)
	}
	c.chain(p, origin{scan: true})
}
