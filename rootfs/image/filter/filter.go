package filter

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opFilter = "image.filter"

// Filter rewrites the layers of one image, lowest first. It keeps what it has
// seen, so that a layer cannot do through an earlier one what it may not do by
// itself.
//
// What it writes, and the fuzz target holds it to that: every name is clean
// and relative; every entry's parents come before it in the same layer,
// as directories; only directories occur twice; hard links name an earlier
// file of the same layer; there are no devices, fifos, set-id bits, extended
// attributes, owners above 65535, nor anything inside /dev, /proc and /sys.
//
// Its rules are data: see formRules and treeRules, each with its reason.
type Filter struct {
	limits Limits
	form   []rule
	inTree []rule
	tree   tree
	seen   int64 // entries read, and directories implied by them
	out    flow.Budget
	report Report
}

// NewFilter returns a Filter for one image. The limits must be valid.
func NewFilter(l Limits) *Filter {
	return &Filter{
		limits: l,
		form:   formRules,
		inTree: treeRules,
		tree:   newTree(),
		out:    flow.Budget{What: "the image", Max: l.Bytes, Ratio: l.Ratio},
		report: Report{Stripped: map[string]int64{}},
	}
}

// Report returns what was done so far.
func (f *Filter) Report() Report {
	r := f.report
	r.Stripped = maps.Clone(r.Stripped)
	return r
}

// Layer reads the next layer, an uncompressed tar, to the end of r and writes
// it anew to w. After an error the Filter is of no further use.
func (f *Filter) Layer(r io.Reader, w io.Writer) error {
	in := &flow.Counter{R: r}
	fw := f.layer(w, in)
	tr := tar.NewReader(in)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && (hdr == nil || !errors.Is(err, tar.ErrInsecurePath)) {
			return f.broken(err)
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue // archive/tar applies none of it, and none of it is written
		}
		if err := fw.Entry(hdr, tr); err != nil {
			return err
		}
	}
	if err := zeros(in); err != nil {
		return f.broken(err)
	}
	return fw.close()
}

func (f *Filter) broken(err error) error {
	return flow.Coded(sbxerr.ImageFormat, opFilter, fmt.Errorf("read layer %d after entry %d: %w", f.tree.layer, f.seen, err))
}

// layer begins a layer. in may be nil: then there is no ratio to hold.
func (f *Filter) layer(w io.Writer, in *flow.Counter) *Writer {
	f.tree.begin()
	f.out.Begin(in)
	return &Writer{f: f, tw: tar.NewWriter(flow.MeteredWriter{W: w, B: &f.out})}
}

func (f *Filter) stripped(key string) { f.report.Stripped[key]++ }

// judge applies the rules to e, which is then written or, when its strip field
// is set, left out.
func (f *Filter) judge(e *entry) error {
	if err := f.apply(f.form, e); err != nil || e.strip != "" {
		return err
	}
	return f.apply(f.inTree, e)
}

func (f *Filter) apply(rules []rule, e *entry) error {
	var errs []error
	for _, r := range rules {
		if err := r.check(f, e); err != nil {
			errs = append(errs, fmt.Errorf("layer %d, entry %s, rule %s: %w", f.tree.layer, flow.Quote(e.path), r.name, err))
		}
	}
	return sbxerr.Wrap(sbxerr.ImageContent, opFilter, errors.Join(errs...))
}

// admit counts e before it is looked at.
func (f *Filter) admit(e *entry) error {
	if f.seen++; f.seen > f.limits.Entries {
		return sbxerr.New(sbxerr.ImageTooBig, opFilter, "layer %d, entry %s: the image has more than %d entries", f.tree.layer, flow.Quote(e.path), f.limits.Entries)
	}
	if f.tree.nameBytes > f.limits.NameBytes {
		return sbxerr.New(sbxerr.ImageTooBig, opFilter, "layer %d, entry %s: the image's names have more than %d bytes", f.tree.layer, flow.Quote(e.path), f.limits.NameBytes)
	}
	return nil
}

// Writer takes the entries of one layer.
type Writer struct {
	f  *Filter
	tw *tar.Writer
}

// Entry adds one entry. hdr is read as a tar header, and what it says passes
// the same rules as an imported one: an entry may be refused, which is an
// error, or left out, which is counted. content must hold the hdr.Size bytes
// of a regular file; it may be nil otherwise. Parents that are missing are
// made, with mode 0755 and owned by root.
func (w *Writer) Entry(hdr *tar.Header, content io.Reader) error {
	e := parse(hdr)
	if err := w.f.admit(e); err != nil {
		return err
	}
	if err := w.f.judge(e); err != nil {
		return err
	}
	if e.strip != "" {
		w.f.stripped(e.strip)
		return nil
	}
	if err := w.write(e, content); err != nil {
		return flow.Coded(sbxerr.ImageFormat, opFilter, fmt.Errorf("layer %d, entry %s: %w", w.f.tree.layer, flow.Quote(e.path), err))
	}
	return nil
}

func (w *Writer) write(e *entry, content io.Reader) error {
	if e.name == "" && e.kind == kindDir {
		return nil // the root's attributes are the unpacker's: 0755, root
	}
	parent, err := w.enter(e.parents())
	if err != nil {
		return err
	}
	t, base := &w.f.tree, path.Base(e.name)
	switch e.kind {
	case kindOpaque:
		t.prune(parent)
		return w.whiteout(path.Join(e.name, opaqueName))
	case kindWhiteout:
		t.put(parent, base, kindWhiteout, meta{})
		return w.whiteout(e.path)
	case kindHardlink:
		target := t.lookup(e.link)
		if target == nil {
			return sbxerr.New(sbxerr.Internal, opFilter, "a hard link to nothing was let through")
		}
		t.put(parent, base, kindFile, target.meta) // the same inode: the link's own header says nothing
		return w.header(header(tar.TypeLink, e.name, e.link, target.meta))
	case kindSymlink:
		t.put(parent, base, kindSymlink, e.meta())
		return w.header(header(tar.TypeSymlink, e.name, e.link, e.meta()))
	case kindDir:
		t.put(parent, base, kindDir, e.meta())
		return w.header(header(tar.TypeDir, e.name+"/", "", e.meta()))
	}
	t.put(parent, base, kindFile, e.meta())
	return w.file(e, content)
}

// enter returns the directory at the end of dirs. Those that this layer does
// not hold yet are written, with what lower layers say of them: a layer by
// itself never makes an unpacker guess.
func (w *Writer) enter(dirs []string) (*node, error) {
	t := &w.f.tree
	n := t.root
	for i, name := range dirs {
		k := t.child(n, name)
		if k != nil && k.layer == t.layer {
			n = k
			continue
		}
		m := impliedDir
		if k != nil {
			m = k.meta
		} else {
			w.f.seen++
		}
		n = t.put(n, name, kindDir, m)
		if err := w.header(header(tar.TypeDir, path.Join(dirs[:i+1]...)+"/", "", m)); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (w *Writer) file(e *entry, content io.Reader) error {
	h := header(tar.TypeReg, e.name, "", e.meta())
	h.Size = e.size
	if err := w.header(h); err != nil || e.size == 0 {
		return err
	}
	if content == nil {
		return fmt.Errorf("the file has %d bytes and no content", e.size)
	}
	n, err := io.CopyN(w.tw, content, e.size)
	w.f.report.Bytes += n
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the file ends after %d of %d bytes", n, e.size)
	}
	return err
}

func (w *Writer) whiteout(name string) error { return w.header(header(tar.TypeReg, name, "", meta{})) }

func (w *Writer) header(h *tar.Header) error {
	w.f.report.Entries++
	return w.tw.WriteHeader(h)
}

func (w *Writer) close() error { return flow.Coded(sbxerr.Internal, opFilter, w.tw.Close()) }

// header is the one place where what is written is made.
func header(flag byte, name, link string, m meta) *tar.Header {
	return &tar.Header{
		Typeflag: flag,
		Name:     name,
		Linkname: link,
		Mode:     int64(m.mode),
		Uid:      int(m.uid),
		Gid:      int(m.gid),
		ModTime:  time.Unix(int64(m.mtime), 0),
	}
}

// zeros reads r to its end, which must be padding: some tar readers go on past
// the end mark, so anything else is an archive within the archive.
func zeros(r io.Reader) error {
	buf := make([]byte, 32<<10)
	zero := make([]byte, len(buf))
	for {
		n, err := r.Read(buf)
		if !bytes.Equal(buf[:n], zero[:n]) {
			return errors.New("there is data after the end of the archive")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
