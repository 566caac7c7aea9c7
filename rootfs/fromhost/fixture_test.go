package fromhost

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain fixes the modes of what the tests make: modes are what they are about.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// node is one path of a fake root. The zero node is an empty directory.
type node struct {
	text string      // content of a file
	link string      // of a symbolic link
	hard string      // path that this is a hard link to
	mode os.FileMode // 0 takes 0644, or 0755 for directories and text that is run
}

func file(text string) node { return node{text: text, mode: 0o644} }
func prog(text string) node { return node{text: text, mode: 0o755} }
func link(to string) node   { return node{link: to} }

// fakeRoot builds a root directory out of nodes by absolute path.
func fakeRoot(t testing.TB, nodes map[string]node) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range slices.Sorted(maps.Keys(nodes)) {
		put(t, root, p, nodes[p])
	}
	// Modes last, so that a closed directory can be filled.
	for _, p := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[p]; n.mode != 0 {
			must(t, os.Chmod(filepath.Join(root, p), n.mode))
		}
	}
	return root
}

func put(t testing.TB, root, p string, n node) {
	t.Helper()
	at := filepath.Join(root, p)
	must(t, os.MkdirAll(filepath.Dir(at), 0o755))
	switch {
	case n.link != "":
		must(t, os.Symlink(n.link, at))
	case n.hard != "":
		must(t, os.Link(filepath.Join(root, n.hard), at))
	case n.mode == 0, n.mode.IsDir():
		must(t, os.MkdirAll(at, 0o755))
	default:
		must(t, os.WriteFile(at, []byte(n.text), 0o644))
		must(t, os.Chtimes(at, fixedTime, fixedTime))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, root string) *tree {
	t.Helper()
	tr, err := openTree(root)
	must(t, err)
	t.Cleanup(func() { must(t, tr.Close()) })
	return tr
}

// ample is more than any fixture holds, and than the tools that some tests copy.
var ample = Limits{Bytes: 8 << 30, Entries: 500_000}

// openFDs counts the descriptors of this process.
func openFDs(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

// fifo makes a named pipe.
func fifo(t testing.TB, p string) {
	t.Helper()
	must(t, unix.Mkfifo(p, 0o644))
}

// elfSpec is an ELF file with nothing but what a loader reads first.
type elfSpec struct {
	class   elf.Class // 0 is 64 bit
	order   binary.ByteOrder
	machine elf.Machine // 0 is x86-64
	typ     elf.Type    // 0 is ET_DYN
	interp  string
	needed  []string
	rpath   string
	runpath string
}

// build lays the file out as header, program headers, interpreter, strings,
// dynamic section, with virtual addresses 0x10000 above the offsets.
func (s elfSpec) build() string {
	if s.class == 0 {
		s.class = elf.ELFCLASS64
	}
	if s.order == nil {
		s.order = binary.LittleEndian
	}
	if s.machine == 0 {
		s.machine = elf.EM_X86_64
	}
	if s.typ == 0 {
		s.typ = elf.ET_DYN
	}
	const base = 0x10000
	headers, interpAt := s.sizes()
	strtabAt := interpAt + uint64(len(s.interp)) + 1
	strtab, tags := s.strings(strtabAt + base)
	dynAt := strtabAt + uint64(len(strtab))
	dyn := s.words(tags)
	total := dynAt + uint64(len(dyn))

	var b bytes.Buffer
	b.Write(headers)
	b.Write(s.segment(elf.PT_LOAD, 0, base, total))
	b.Write(s.segment(elf.PT_DYNAMIC, dynAt, dynAt+base, uint64(len(dyn))))
	if s.interp != "" {
		b.Write(s.segment(elf.PT_INTERP, interpAt, interpAt+base, uint64(len(s.interp))+1))
	} else {
		b.Write(s.segment(elf.PT_NULL, 0, 0, 0))
	}
	b.WriteString(s.interp + "\x00")
	b.Write(strtab)
	b.Write(dyn)
	return b.String()
}

func (s elfSpec) sizes() (header []byte, end uint64) {
	var b bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(s.class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	if s.order == binary.BigEndian {
		ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	if s.class == elf.ELFCLASS64 {
		_ = binary.Write(&b, s.order, elf.Header64{
			Ident: ident, Type: uint16(s.typ), Machine: uint16(s.machine), Version: 1,
			Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
		})
		return b.Bytes(), 64 + 3*56
	}
	_ = binary.Write(&b, s.order, elf.Header32{
		Ident: ident, Type: uint16(s.typ), Machine: uint16(s.machine), Version: 1,
		Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 3,
	})
	return b.Bytes(), 52 + 3*32
}

func (s elfSpec) segment(kind elf.ProgType, off, addr, size uint64) []byte {
	var b bytes.Buffer
	if s.class == elf.ELFCLASS64 {
		_ = binary.Write(&b, s.order, elf.Prog64{Type: uint32(kind), Off: off, Vaddr: addr, Filesz: size, Memsz: size})
	} else {
		_ = binary.Write(&b, s.order, elf.Prog32{
			Type: uint32(kind), Off: uint32(off), Vaddr: uint32(addr), Filesz: uint32(size), Memsz: uint32(size),
		})
	}
	return b.Bytes()
}

func (s elfSpec) strings(strtab uint64) (table []byte, tags [][2]uint64) {
	table = []byte{0}
	add := func(tag elf.DynTag, text string) {
		tags = append(tags, [2]uint64{uint64(tag), uint64(len(table))})
		table = append(table, text+"\x00"...)
	}
	for _, n := range s.needed {
		add(elf.DT_NEEDED, n)
	}
	if s.rpath != "" {
		add(elf.DT_RPATH, s.rpath)
	}
	if s.runpath != "" {
		add(elf.DT_RUNPATH, s.runpath)
	}
	return table, append(tags, [2]uint64{uint64(elf.DT_STRTAB), strtab}, [2]uint64{})
}

func (s elfSpec) words(tags [][2]uint64) []byte {
	var b bytes.Buffer
	for _, t := range tags {
		if s.class == elf.ELFCLASS64 {
			_ = binary.Write(&b, s.order, t[:])
		} else {
			_ = binary.Write(&b, s.order, []uint32{uint32(t[0]), uint32(t[1])})
		}
	}
	return b.Bytes()
}
