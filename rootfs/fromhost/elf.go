package fromhost

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// object is what the dynamic loader reads of an ELF file (elf(5), ld.so(8)).
type object struct {
	class   elf.Class
	machine elf.Machine
	interp  string // the loader; empty for a library or a static program
	needed  []string
	rpath   []string // DT_RPATH, empty when there is a DT_RUNPATH
	runpath []string // DT_RUNPATH
}

// Bounds on what one file may make us read: the largest programs have some
// tens of headers, some hundred dynamic entries and some hundred libraries.
const (
	maxHeaders = 512
	maxDynamic = 1 << 14
	maxNeeded  = 4096
	maxString  = 4096
)

var (
	errNotELF = errors.New("no ELF file")
	errBadELF = errors.New("malformed ELF file")
)

// elfImage is the part of an ELF file that leads to its dynamic section. The
// standard library's debug/elf reads more, and says of itself that it is not
// hardened against hostile files.
type elfImage struct {
	r       io.ReaderAt
	order   binary.ByteOrder
	is64    bool
	loads   []segment
	dynamic segment
	interp  segment
}

type segment struct{ offset, vaddr, size uint64 }

// readELF returns errNotELF for any other file and errBadELF for one that
// cannot be followed.
func readELF(r io.ReaderAt) (*object, error) {
	var head [64]byte
	n, err := r.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < elf.EI_NIDENT || string(head[:4]) != elf.ELFMAG {
		return nil, errNotELF
	}
	m := elfImage{r: r}
	switch elf.Data(head[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		m.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		m.order = binary.BigEndian
	default:
		return nil, errBadELF
	}
	o := &object{class: elf.Class(head[elf.EI_CLASS]), machine: elf.Machine(m.order.Uint16(head[18:]))}
	m.is64 = o.class == elf.ELFCLASS64
	if !m.is64 && o.class != elf.ELFCLASS32 {
		return nil, errBadELF
	}
	switch elf.Type(m.order.Uint16(head[16:])) {
	case elf.ET_EXEC, elf.ET_DYN:
	default:
		return o, nil // an object file or a core needs nothing
	}
	if err := m.programHeaders(head[:n]); err != nil {
		return nil, err
	}
	return o, m.describe(o)
}

func (m *elfImage) programHeaders(head []byte) error {
	need, phoff, at := 52, uint64(0), 42
	if m.is64 {
		need, at = 64, 54
	}
	if len(head) < need {
		return errBadELF
	}
	if m.is64 {
		phoff = m.order.Uint64(head[32:])
	} else {
		phoff = uint64(m.order.Uint32(head[28:]))
	}
	size, count := int(m.order.Uint16(head[at:])), int(m.order.Uint16(head[at+2:]))
	least := 32
	if m.is64 {
		least = 56
	}
	if count == 0 {
		return nil
	}
	if size < least || size > 1024 || count > maxHeaders {
		return errBadELF
	}
	table, err := m.read(phoff, uint64(size*count))
	if err != nil {
		return err
	}
	for i := range count {
		m.programHeader(table[i*size:])
	}
	return nil
}

func (m *elfImage) programHeader(h []byte) {
	var s segment
	if m.is64 {
		s = segment{m.order.Uint64(h[8:]), m.order.Uint64(h[16:]), m.order.Uint64(h[32:])}
	} else {
		s = segment{uint64(m.order.Uint32(h[4:])), uint64(m.order.Uint32(h[8:])), uint64(m.order.Uint32(h[16:]))}
	}
	switch elf.ProgType(m.order.Uint32(h)) {
	case elf.PT_LOAD:
		m.loads = append(m.loads, s)
	case elf.PT_DYNAMIC:
		m.dynamic = s
	case elf.PT_INTERP:
		m.interp = s
	}
}

// describe fills in what the segments say.
func (m *elfImage) describe(o *object) error {
	if m.interp.size > 0 {
		s, err := m.str(m.interp.offset)
		if err != nil {
			return err
		}
		o.interp = s
	}
	tags, err := m.dynamicTags()
	if err != nil || tags == nil {
		return err
	}
	strtab, ok := m.fileOffset(tags[elf.DT_STRTAB])
	if !ok {
		return errBadELF
	}
	for _, list := range []struct {
		tag  elf.DynTag
		into *[]string
	}{{elf.DT_NEEDED, &o.needed}, {elf.DT_RPATH, &o.rpath}, {elf.DT_RUNPATH, &o.runpath}} {
		for _, at := range tags[list.tag] {
			s, err := m.str(strtab + at)
			if err != nil {
				return err
			}
			*list.into = append(*list.into, s)
		}
	}
	o.rpath, o.runpath = searchPath(o.rpath), searchPath(o.runpath)
	if len(o.runpath) > 0 {
		o.rpath = nil
	}
	return nil
}

func searchPath(texts []string) []string {
	var dirs []string
	for _, t := range texts {
		for d := range strings.SplitSeq(t, ":") {
			if d != "" { // the current directory, which has no meaning here
				dirs = append(dirs, d)
			}
		}
	}
	return dirs
}

// dynamicTags returns the values of the dynamic section by tag; nil if there
// is none.
func (m *elfImage) dynamicTags() (map[elf.DynTag][]uint64, error) {
	entry := uint64(8)
	if m.is64 {
		entry = 16
	}
	size := min(m.dynamic.size, maxDynamic*entry) / entry * entry
	if size == 0 {
		return nil, nil
	}
	data, err := m.read(m.dynamic.offset, size)
	if err != nil {
		return nil, err
	}
	tags := map[elf.DynTag][]uint64{}
	for ; len(data) > 0; data = data[entry:] {
		var tag elf.DynTag
		var value uint64
		if m.is64 {
			tag, value = elf.DynTag(m.order.Uint64(data)), m.order.Uint64(data[8:])
		} else {
			tag, value = elf.DynTag(int32(m.order.Uint32(data))), uint64(m.order.Uint32(data[4:]))
		}
		switch tag {
		case elf.DT_NULL:
			return tags, nil
		case elf.DT_NEEDED, elf.DT_RPATH, elf.DT_RUNPATH, elf.DT_STRTAB:
			if len(tags[tag]) >= maxNeeded {
				return nil, errBadELF
			}
			tags[tag] = append(tags[tag], value)
		}
	}
	return tags, nil
}

// fileOffset finds where in the file the one address of vaddrs is.
func (m *elfImage) fileOffset(vaddrs []uint64) (uint64, bool) {
	if len(vaddrs) != 1 {
		return 0, false
	}
	for _, s := range m.loads {
		if v := vaddrs[0]; v >= s.vaddr && v-s.vaddr < s.size {
			return s.offset + (v - s.vaddr), true
		}
	}
	return 0, false
}

// str reads the NUL-terminated string at offset.
func (m *elfImage) str(offset uint64) (string, error) {
	if int64(offset) < 0 {
		return "", errBadELF
	}
	buf := make([]byte, maxString)
	n, err := m.r.ReadAt(buf, int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	end := bytes.IndexByte(buf[:n], 0)
	if end < 0 {
		return "", fmt.Errorf("%w: a string without end", errBadELF)
	}
	return string(buf[:end]), nil
}

func (m *elfImage) read(offset, size uint64) ([]byte, error) {
	if int64(offset) < 0 {
		return nil, errBadELF
	}
	buf := make([]byte, size)
	n, err := m.r.ReadAt(buf, int64(offset))
	if n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it is cut short", errBadELF)
		}
		return nil, err
	}
	return buf, nil
}
