package unified

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // names of git
	"encoding/hex"
	"fmt"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/caisson-run/caisson/rootfs/patch"
)

const (
	around  = 3 // lines around a difference
	nothing = "/dev/null"
)

// content is what both sides of a file have. A side that is not there has none.
type content struct{ old, new []byte }

func (c content) isBinary() bool {
	return bytes.IndexByte(c.old, 0) >= 0 || bytes.IndexByte(c.new, 0) >= 0
}

// write returns the patch of a file, which is empty if a patch has no such change. binary tells
// that the content is not in it.
func write(f patch.File, c content) (text string, binary bool, err error) {
	var b strings.Builder
	renamed := header(&b, f)
	same := f.Old != nil && f.New != nil && (f.Same || bytes.Equal(c.old, c.new))
	switch {
	case same && !renamed && f.Old.Mode == f.New.Mode:
		return "", false, nil
	case same:
		return b.String(), false, nil
	}
	index(&b, f, c)
	if c.isBinary() {
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", label("a/", f.Old), label("b/", f.New))
		return b.String(), true, nil
	}
	err = hunks(&b, f, c)
	return b.String(), false, err
}

// header writes all before the content, and reports whether it says that the file was renamed.
func header(b *strings.Builder, f patch.File) (renamed bool) {
	was, is := f.Old, f.New
	if was == nil {
		was = is
	}
	if is == nil {
		is = was
	}
	fmt.Fprintf(b, "diff --git %s %s\n", label("a/", was), label("b/", is))
	switch {
	case f.Old == nil:
		fmt.Fprintf(b, "new file mode %o\n", f.New.Mode)
	case f.New == nil:
		fmt.Fprintf(b, "deleted file mode %o\n", f.Old.Mode)
	case f.Old.Mode != f.New.Mode:
		fmt.Fprintf(b, "old mode %o\nnew mode %o\n", f.Old.Mode, f.New.Mode)
	}
	if renamed = !bytes.Equal(was.Name, is.Name); renamed {
		if f.Same {
			b.WriteString("similarity index 100%\n")
		}
		fmt.Fprintf(b, "rename from %s\nrename to %s\n", quoted(string(was.Name)), quoted(string(is.Name)))
	}
	return renamed
}

// index writes which blobs the contents are to git, the mode after them if both sides have it.
// Without that line git apply does not know the header of a binary file for one.
func index(b *strings.Builder, f patch.File, c content) {
	fmt.Fprintf(b, "index %s..%s", blob(f.Old, c.old), blob(f.New, c.new))
	if f.Old != nil && f.New != nil && f.Old.Mode == f.New.Mode {
		fmt.Fprintf(b, " %o", f.New.Mode)
	}
	b.WriteByte('\n')
}

// blob is the short name of a blob.
func blob(s *patch.Side, data []byte) string {
	if s == nil {
		return "0000000"
	}
	h := sha1.New() //nolint:gosec // a name, which nothing trusts
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))[:7]
}

func label(prefix string, s *patch.Side) string {
	if s == nil {
		return nothing
	}
	return quoted(prefix + string(s.Name))
}

// hunks writes how the content differs.
func hunks(b *strings.Builder, f patch.File, c content) error {
	from, to := ended(label("a/", f.Old)), ended(label("b/", f.New))
	if len(c.old) > 0 && len(c.new) > 0 {
		text, err := udiff.ToUnified(from, to, string(c.old), udiff.Lines(string(c.old), string(c.new)), around)
		b.WriteString(text)
		return err
	}
	if len(c.old)+len(c.new) == 0 {
		return nil
	}
	fmt.Fprintf(b, "--- %s\n+++ %s\n@@ -%s +%s @@\n", from, to, extent(c.old), extent(c.new))
	whole(b, '-', c.old)
	whole(b, '+', c.new)
	return nil
}

// extent is the part of a hunk's head of a file that is in it as a whole.
func extent(text []byte) string {
	lines := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		lines++
	}
	switch lines {
	case 0:
		return "0,0"
	case 1:
		return "1"
	}
	return fmt.Sprintf("1,%d", lines)
}

func whole(b *strings.Builder, sign byte, text []byte) {
	for line := range bytes.Lines(text) {
		b.WriteByte(sign)
		b.Write(line)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		b.WriteString("\n\\ No newline at end of file\n")
	}
}
