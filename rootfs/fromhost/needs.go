package fromhost

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// commandDirs are where programs are looked for, in the order of a usual PATH.
var commandDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// multiarch are the directories of Debian-like systems that the loader has
// built in, below /lib and /usr/lib.
var multiarch = map[elf.Machine][]string{
	elf.EM_X86_64:  {"x86_64-linux-gnu", "x86_64-linux-gnux32"},
	elf.EM_386:     {"i386-linux-gnu"},
	elf.EM_AARCH64: {"aarch64-linux-gnu"},
	elf.EM_ARM:     {"arm-linux-gnueabihf", "arm-linux-gnueabi"},
	elf.EM_RISCV:   {"riscv64-linux-gnu"},
	elf.EM_PPC64:   {"powerpc64le-linux-gnu"},
	elf.EM_S390:    {"s390x-linux-gnu"},
}

// scan is a file that may need others.
type scan struct {
	path  string // without links
	found string // the name it was found by, from which $ORIGIN is made
	mode  uint32
	rpath []string // of what loads it
}

// needs searches the files that were added since it was called last.
func (c *collector) needs() error {
	for len(c.scans) > 0 {
		s := c.scans[len(c.scans)-1]
		c.scans = c.scans[:len(c.scans)-1]
		if c.scanned[s.path] {
			continue
		}
		c.scanned[s.path] = true
		if err := c.scanFile(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) scanFile(s scan) error {
	head, o, err := c.inspect(s.path)
	switch {
	case err != nil:
		return err
	case o != nil:
		return c.objectNeeds(s, o)
	case s.mode&unix.S_IXOTH != 0 && bytes.HasPrefix(head, []byte("#!")):
		return c.scriptNeeds(s.path, head)
	}
	return nil
}

// inspect reads the start of file p, and what it needs if it is an ELF file.
// What cannot be read or followed needs nothing: reading it for the image will
// say so.
func (c *collector) inspect(p string) (head []byte, o *object, err error) {
	if o, ok := c.objects[p]; ok {
		return nil, o, nil
	}
	f, _, err := c.tree.open(p)
	if err != nil {
		if skippable(err) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("open %q: %w", p, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return c.inspectFile(p, f)
}

func (c *collector) inspectFile(p string, f *os.File) ([]byte, *object, error) {
	head := make([]byte, maxInterpreterLine)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read %q: %w", p, err)
	}
	head = head[:n]
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return head, nil, nil
	}
	o, err := readELF(f)
	if errors.Is(err, errBadELF) || errors.Is(err, errNotELF) {
		return head, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", p, err)
	}
	c.objects[p] = o
	return head, o, nil
}

// objectNeeds adds the loader and the libraries of an ELF file.
func (c *collector) objectNeeds(s scan, o *object) error {
	why := origin{why: "needed by " + s.path, scan: true}
	if o.interp != "" && path.IsAbs(o.interp) {
		if err := c.chain(o.interp, why); err != nil {
			return err
		}
	}
	var chain []string // the paths that count for what this object loads
	if len(o.runpath) == 0 {
		chain = append(c.expand(o.rpath, s, o), s.rpath...)
	}
	search := append(slices.Clone(chain), c.expand(o.runpath, s, o)...)
	for _, name := range o.needed {
		if err := c.libraryNeeded(name, s, o, search, chain, why); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) libraryNeeded(name string, s scan, o *object, search, chain []string, why origin) error {
	found, r, err := c.library(name, s, o, search)
	if err != nil {
		return err
	}
	if found == "" {
		c.leave(LeftLibrary, name+" for "+s.path, nil)
		return nil
	}
	if len(chain) > maxSearch {
		chain = chain[:maxSearch]
	}
	// Queued here and not by chain, which does not know what loads it.
	c.scans = append(c.scans, scan{path: r.path, found: found, mode: r.info.mode, rpath: chain})
	return c.chain(found, origin{why: why.why})
}

// maxSearch bounds the search path that libraries hand down.
const maxSearch = 64

// library finds name as ld.so(8) does, short of the environment.
func (c *collector) library(name string, s scan, o *object, search []string) (string, resolved, error) {
	for _, p := range c.candidates(name, s, o, search) {
		r, err := c.tree.resolve(p)
		if err != nil {
			if skippable(err) {
				continue
			}
			return "", resolved{}, fmt.Errorf("look for library %q: %w", p, err)
		}
		if !r.info.isRegular() {
			continue
		}
		_, lib, err := c.inspect(r.path)
		if err != nil {
			return "", resolved{}, err
		}
		if lib != nil && lib.class == o.class && lib.machine == o.machine {
			return p, r, nil
		}
	}
	return "", resolved{}, nil
}

func (c *collector) candidates(name string, s scan, o *object, search []string) []string {
	if strings.Contains(name, "/") {
		return slices.DeleteFunc(c.expand([]string{name}, s, o), func(p string) bool { return !path.IsAbs(p) })
	}
	var all []string
	for _, dir := range search {
		all = append(all, dir+"/"+name)
	}
	all = append(all, c.cache.paths(name)...)
	for _, dir := range c.builtin(o.machine) {
		all = append(all, dir+"/"+name)
	}
	return all
}

// builtin are the directories that loaders search by themselves: glibc's of
// Debian and Red Hat, and without a cache, which is glibc's, also musl's.
func (c *collector) builtin(m elf.Machine) []string {
	var dirs []string
	for _, a := range multiarch[m] {
		dirs = append(dirs, "/lib/"+a, "/usr/lib/"+a)
	}
	dirs = append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	if c.cache == nil {
		dirs = append(dirs, "/usr/local/lib")
	}
	return dirs
}

// expand replaces the tokens of ld.so(8) in dirs. $LIB and $PLATFORM depend on
// how the loader was built, so all usual values are tried for $LIB, and a
// directory with $PLATFORM is dropped: it is for libraries that have a twin.
func (c *collector) expand(dirs []string, s scan, o *object) []string {
	libs := []string{"lib64", "lib"}
	for _, a := range multiarch[o.machine] {
		libs = append(libs, "lib/"+a)
	}
	var all []string
	for _, d := range dirs {
		d = strings.NewReplacer("${ORIGIN}", path.Dir(s.found), "$ORIGIN", path.Dir(s.found)).Replace(d)
		switch {
		case strings.Contains(d, "$LIB"), strings.Contains(d, "${LIB}"):
			for _, l := range libs {
				all = append(all, strings.NewReplacer("${LIB}", l, "$LIB", l).Replace(d))
			}
		case strings.Contains(d, "$"):
		case path.IsAbs(d):
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
func (c *collector) scriptNeeds(p string, head []byte) error {
	program, command := interpreter(head)
	if program == "" {
		return nil
	}
	if err := c.program(program, p); err != nil || command == "" {
		return err
	}
	if path.IsAbs(command) {
		return c.program(command, p)
	}
	at, ok, err := c.command(command)
	if err != nil {
		return err
	}
	if !ok {
		c.leave(LeftInterpreter, command+" for "+p, nil)
		return nil
	}
	return c.program(at, p)
}

// command finds a program by its name.
func (c *collector) command(name string) (string, bool, error) {
	for _, dir := range commandDirs {
		p := path.Join(dir, name)
		r, err := c.tree.resolve(p)
		if err != nil && !skippable(err) {
			return "", false, fmt.Errorf("look for command %q: %w", p, err)
		}
		if err == nil && r.info.isRegular() && r.info.mode&unix.S_IXOTH != 0 {
			return p, true, nil
		}
	}
	return "", false, nil
}

// program adds the program at p with its libraries and, since an interpreter is
// little without its modules, the package that it comes from.
func (c *collector) program(p, by string) error {
	r, err := c.tree.resolve(p)
	if err != nil || !r.info.isRegular() {
		if err != nil && !skippable(err) {
			return fmt.Errorf("look for interpreter %q: %w", p, err)
		}
		c.leave(LeftInterpreter, p+" for "+by, nil)
		return nil
	}
	if c.set[r.path] == nil {
		if err := c.ownerOf(r.path); err != nil {
			return err
		}
	}
	return c.chain(p, origin{why: "interpreter of " + by, scan: true})
}
