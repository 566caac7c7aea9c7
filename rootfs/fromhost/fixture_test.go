package fromhost

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/tests/need"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var fixedTime = time.Unix(1_700_000_000, 0)

// TestMain fixes the modes of what the tests make: modes are what they are about.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

// memory is a sink that keeps everything, and calls hook before each entry.
type memory struct {
	headers map[string]*tar.Header // by absolute path
	content map[string]string
	order   []string
	hook    func(p string) error
}

// Entry implements Sink.
func (m *memory) Entry(hdr *tar.Header, content io.Reader) error {
	p := "/" + strings.TrimSuffix(hdr.Name, "/")
	if m.hook != nil {
		if err := m.hook(p); err != nil {
			return err
		}
	}
	m.headers[p] = hdr
	m.order = append(m.order, p)
	if content == nil {
		return nil
	}
	data, err := io.ReadAll(content)
	m.content[p] = string(data)
	return err
}

func init() {
	if os.Args[0] == imageproc.Name {
		os.Exit(imageproc.Main(map[string]imageproc.Handler{imagework.KindHost: Serve}))
	}
}

// Collection is what the daemon gets of a collector.
type Collection struct {
	*imagework.Software
	ctx context.Context
}

// Collect starts a collector as the daemon does.
func Collect(ctx context.Context, r Request) (*Collection, error) {
	limits := image.DefaultLimits()
	limits.Bytes, limits.Entries = r.Limits.Bytes, r.Limits.Entries
	program := imageproc.Program{Path: "/proc/self/exe"}
	s, err := imagework.Collect(ctx, program, imagework.HostRequest{Root: r.Root, Packages: r.Packages, Paths: r.Paths, Limits: limits})
	return &Collection{s, ctx}, err
}

// Write passes the entries of the image to m.
func (c *Collection) Write(m *memory) ([]string, error) {
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		in := tar.NewReader(r)
		for {
			hdr, err := in.Next()
			if err == nil {
				err = m.Entry(hdr, in)
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					_, _ = io.Copy(io.Discard, r)
					err = nil
				}
				r.CloseWithError(err)
				read <- err
				return
			}
		}
	}()
	_, warnings, err := c.Software.Write(c.ctx, w)
	w.CloseWithError(err)
	return warnings, cmp.Or(err, <-read)
}

// collected is what a request gives.
type collected struct {
	memory
	*Collection
	warnings []string
}

func collect(t testing.TB, root string, r Request) (collected, error) {
	t.Helper()
	need.Root(t, "it starts a process of another user")
	r.Root = root
	if r.Limits == (Limits{}) {
		r.Limits = ample
	}
	got := collected{memory: memory{headers: map[string]*tar.Header{}, content: map[string]string{}}}
	var err error
	if got.Collection, err = Collect(t.Context(), r); err != nil {
		return got, err
	}
	t.Cleanup(got.Close)
	got.warnings, err = got.Write(&got.memory)
	return got, err
}

// warned returns the line of warning for why, or "".
func (c collected) warned(why reason) string {
	i := slices.IndexFunc(c.warnings, func(w string) bool { return strings.HasPrefix(w, string(why)) })
	if i < 0 {
		return ""
	}
	return c.warnings[i]
}

func (c collected) render() string {
	var b strings.Builder
	kinds := map[byte]string{tar.TypeDir: "dir", tar.TypeReg: "file", tar.TypeSymlink: "symlink", tar.TypeLink: "hardlink"}
	for _, p := range c.order {
		h := c.headers[p]
		fmt.Fprintf(&b, "%-8s %04o %s", kinds[h.Typeflag], h.Mode, p)
		if h.Linkname != "" {
			fmt.Fprintf(&b, " -> %s", h.Linkname)
		}
		b.WriteString("\n")
	}
	for _, w := range c.warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "%s\nenv: %q\n", c.Summary, c.Env)
	return b.String()
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
	must(t, os.Chmod(filepath.Dir(root), 0o755)) // the collector's user comes in
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
	interp  string
	needed  []string
	rpath   string
	runpath string
}

// build lays the file out as header, program header, interpreter, strings,
// dynamic section, section headers.
func (s elfSpec) build() string {
	const headerSize, progSize = 64, 56
	strtab := []byte{0}
	var tags []elf.Dyn64
	add := func(tag elf.DynTag, texts ...string) {
		for _, text := range texts {
			if text != "" {
				tags = append(tags, elf.Dyn64{Tag: int64(tag), Val: uint64(len(strtab))})
				strtab = append(strtab, text+"\x00"...)
			}
		}
	}
	add(elf.DT_NEEDED, s.needed...)
	add(elf.DT_RPATH, s.rpath)
	add(elf.DT_RUNPATH, s.runpath)
	tags = append(tags, elf.Dyn64{})
	interp := s.interp + "\x00"
	strAt := uint64(headerSize + progSize + len(interp))
	dynAt, dynSize := strAt+uint64(len(strtab)), uint64(binary.Size(tags))
	prog := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headerSize + progSize, Filesz: uint64(len(interp))}
	if s.interp == "" {
		prog.Type = uint32(elf.PT_NULL)
	}
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
			Phoff: headerSize, Ehsize: headerSize, Phentsize: progSize, Phnum: 1,
			Shoff: dynAt + dynSize, Shentsize: 64, Shnum: 3, Shstrndx: 1,
		},
		prog, []byte(interp), strtab, tags,
		[]elf.Section64{
			{},
			{Type: uint32(elf.SHT_STRTAB), Off: strAt, Size: uint64(len(strtab))},
			{Type: uint32(elf.SHT_DYNAMIC), Off: dynAt, Size: dynSize, Link: 1, Entsize: 16},
		},
	} {
		_ = binary.Write(&b, binary.LittleEndian, part) // a buffer takes all
	}
	return b.String()
}

// elf32 is a file of another architecture.
func elf32() string {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, elf.Header32{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT), Ehsize: 52,
	})
	return b.String()
}
