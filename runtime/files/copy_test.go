package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// archive makes a tar of headers; regular files hold their name.
func archive(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, h.Name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// unpacked returns the entries of a tar, rendered.
func unpacked(t testing.TB, r io.Reader) []string {
	t.Helper()
	list := []string{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.Mode&^0o777 != 0 || len(h.PAXRecords) != 0 {
			t.Errorf("%q carries more than it should: %+v", h.Name, h)
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%c %s %o %s%s", h.Typeflag, h.Name, h.Mode, h.Linkname, content)))
	}
}

func TestCopyOut(t *testing.T) {
	s, _, dir := session(t)
	ctx := testContext(t)
	write(t, dir+"/top/b/file", "content", 0o640)
	write(t, dir+"/top/run", "#!", 0o755)
	write(t, dir+"/top/setid", "s", 0o644)
	write(t, dir+"/top/bad\x1b[2Jname/inner", "x", 0o644)
	write(t, dir+"/top/latin\xe9", "x", 0o644)
	if err := errors.Join(
		os.Chmod(dir+"/top/setid", 0o755|os.ModeSetuid|os.ModeSetgid),
		os.Link(dir+"/top/run", dir+"/top/runs-too"),
		os.Symlink("b/file", dir+"/top/link-in"),
		os.Symlink("../run", dir+"/top/b/link-up"),
		os.Symlink("../../x", dir+"/top/b/link-out"),
		os.Symlink("/etc/shadow", dir+"/top/link-absolute"),
		os.Symlink("b/../../x", dir+"/top/link-sly"),
		os.Symlink("top", dir+"/alias"),
		unix.Mkfifo(dir+"/top/fifo", 0o644),
	); err != nil {
		t.Fatal(err)
	}
	own(t, dir)
	if err := os.Chmod(dir+"/top/setid", 0o755|os.ModeSetuid|os.ModeSetgid); err != nil { // chown drops it
		t.Fatal(err)
	}
	var b bytes.Buffer
	copied, err := s.CopyOut(ctx, dir+"/top", 0, &b)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"5 top/ 755", "5 top/b/ 755", "0 top/b/file 640 content", "2 top/b/link-up 777 ../run", "2 top/link-in 777 b/file",
		"0 top/run 755 #!", "0 top/runs-too 755 #!", "0 top/setid 755 s",
	}
	if got := unpacked(t, &b); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	left := []string{"bad\x1b[2Jname", "bad\x1b[2Jname/inner", "b/link-out", "fifo", "latin\xe9", "link-absolute", "link-sly"}
	for i := range left {
		left[i] = dir + "/top/" + left[i]
	}
	slices.Sort(left)
	slices.Sort(copied.Names)
	if wanted := (Copied{Entries: 8, Bytes: 12, LeftOut: 7, Names: left}); !reflect.DeepEqual(copied, wanted) {
		t.Errorf("%+v\nwant %+v", copied, wanted)
	}
	for path, first := range map[string]string{
		"/top/b/file": "0 file 640 content", "/top/b/.": "5 ./ 755", "/alias": "5 alias/ 755", "/top/b/": "5 b/ 755",
	} {
		b.Reset()
		if _, err := s.CopyOut(ctx, dir+path, 0, &b); err != nil {
			t.Fatal(err)
		}
		if got := unpacked(t, &b); got[0] != first {
			t.Errorf("%s: %q, want %q first", path, got, first)
		}
	}
	for path, want := range map[string]sbxerr.Code{"/gone": sbxerr.FileAbsent, "/top/fifo": sbxerr.FileKind, "/top/latin\xe9": sbxerr.FilePath} {
		_, err := s.CopyOut(ctx, dir+path, 0, io.Discard)
		refused(t, path, err, want, "")
	}
	s.limits.Bytes = 5
	_, err = s.CopyOut(ctx, dir+"/top", 0, io.Discard)
	refused(t, "bytes", err, sbxerr.FileTooBig, "more than 5 bytes")
	s.limits = DefaultLimits()
	s.limits.ArchiveEntries = 3
	_, err = s.CopyOut(ctx, dir+"/top", 0, io.Discard)
	refused(t, "entries", err, sbxerr.FileTooBig, "more than 3 entries")
	s.limits = DefaultLimits()
	_, err = s.CopyOut(ctx, dir+"/top", 3, io.Discard)
	refused(t, "more than was asked for", err, sbxerr.CopyTooBig, "more than 3 bytes")
	s.holds = func(context.Context) int64 { return 4 }
	_, err = s.CopyOut(ctx, dir+"/top", 0, io.Discard)
	refused(t, "more than it can hold", err, sbxerr.CopyTooBig, "more than 4 bytes")
	if _, err = s.CopyOut(ctx, dir+"/top", 1<<20, io.Discard); err != nil {
		t.Errorf("as much as was asked for: %v", err)
	}
}

func TestCopyIn(t *testing.T) {
	s, _, dir := session(t)
	ctx := testContext(t)
	when := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	copied, err := s.CopyIn(ctx, dir, archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "closed/", Typeflag: tar.TypeDir, Mode: 0o500},
		tar.Header{Name: "closed/in/", Typeflag: tar.TypeDir, Mode: 0o100},
		tar.Header{Name: "closed/in/file", ModTime: when},
		tar.Header{Name: ".//made/./implicitly", Mode: 0o6755},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "made/implicitly"},
		tar.Header{Name: "soft", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		tar.Header{Name: "twice", Mode: 0o600},
		tar.Header{Name: "twice", Mode: 0o640},
	))
	if err != nil || copied.Entries != 8 || copied.Bytes != 44 {
		t.Fatalf("%+v, %v", copied, err)
	}
	for name, mode := range map[string]os.FileMode{
		"closed": os.ModeDir | 0o500, "closed/in": os.ModeDir | 0o100, "closed/in/file": 0o644, "made": os.ModeDir | 0o755,
		"made/implicitly": 0o755, "hard": 0o755, "soft": os.ModeSymlink | 0o777, "twice": 0o640,
	} {
		info, err := os.Lstat(dir + "/" + name)
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if name == "closed/in/file" && !info.ModTime().Equal(when) {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"closed", "hard", "made", "soft", "twice"}) {
		t.Errorf("there are %q", got)
	}
	// Again: directories are merged, files replaced.
	if _, err := s.CopyIn(ctx, dir, archive(t, tar.Header{Name: "made/more"}, tar.Header{Name: "made/implicitly"}, tar.Header{Name: "soft"})); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir+"/made"); !slices.Equal(got, []string{"implicitly", "more"}) {
		t.Errorf("made holds %q", got)
	}
	if info, err := os.Lstat(dir + "/soft"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the symlink was not replaced: %v, %v", info, err)
	}
	_, err = s.CopyIn(ctx, dir+"/twice", archive(t))
	refused(t, "into a file", err, sbxerr.FileKind, "not a directory")
	_, err = s.CopyIn(ctx, dir+"/gone", archive(t, tar.Header{Name: "x"}))
	refused(t, "into nothing", err, sbxerr.FileAbsent, `copy into "`+dir+`/gone"`)
}

// What is refused leaves the target as it was.
func TestCopyInRefuses(t *testing.T) {
	s, _, dir := session(t)
	outside := t.TempDir()
	write(t, dir+"/file", "old", 0o644)
	write(t, dir+"/dir/in", "old", 0o644)
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	own(t, dir)
	good := tar.Header{Name: "good"}
	for name, tc := range map[string]struct {
		archive io.Reader
		code    sbxerr.Code
		text    string
	}{
		"climbing":         {archive(t, good, tar.Header{Name: "a/../../x"}), sbxerr.Archive, `the name "a/../../x" holds ".."`},
		"climbing inside":  {archive(t, good, tar.Header{Name: "a/../x"}), sbxerr.Archive, `holds ".."`},
		"absolute":         {archive(t, good, tar.Header{Name: "/etc/x"}), sbxerr.Archive, `the name "/etc/x" is absolute`},
		"long element":     {archive(t, good, tar.Header{Name: strings.Repeat("x", 256)}), sbxerr.Archive, "an element of 256 bytes"},
		"long name":        {archive(t, good, tar.Header{Name: strings.Repeat(strings.Repeat("x", 99)+"/", 42) + "x"}), sbxerr.Archive, "4201 bytes"},
		"deep name":        {archive(t, good, tar.Header{Name: strings.Repeat("x/", 201) + "x"}), sbxerr.Archive, "more than 200 directories"},
		"device":           {archive(t, good, tar.Header{Name: "d", Typeflag: tar.TypeBlock}), sbxerr.Archive, "neither a file"},
		"character device": {archive(t, good, tar.Header{Name: "d", Typeflag: tar.TypeChar}), sbxerr.Archive, "neither a file"},
		"fifo":             {archive(t, good, tar.Header{Name: "d", Typeflag: tar.TypeFifo}), sbxerr.Archive, "neither a file"},
		"no name":          {archive(t, good, tar.Header{Name: "./."}), sbxerr.Archive, "names no entry"},
		"hard link out":    {archive(t, good, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}), sbxerr.Archive, `holds ".."`},
		"hard link absolute": {
			archive(t, good, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), sbxerr.Archive, "is absolute",
		},
		"hard link through symlink": {
			archive(t, tar.Header{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "s/passwd"}),
			sbxerr.FileKind, "a symbolic link is in the way",
		},
		"hard link to what was there": {archive(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "file"}), sbxerr.FileAbsent, "h"},
		"write through symlink": {
			archive(t, tar.Header{Name: "s", Typeflag: tar.TypeSymlink, Linkname: outside}, tar.Header{Name: "s/x"}), sbxerr.FileKind, "a symbolic link is in the way",
		},
		"write through old symlink": {archive(t, good, tar.Header{Name: "link/x"}), sbxerr.FileKind, `/link": a symbolic link is in the way`},
		"directory over file":       {archive(t, good, tar.Header{Name: "file/x"}), sbxerr.FileKind, "not a directory"},
		"file over directory":       {archive(t, good, tar.Header{Name: "dir"}), sbxerr.FileKind, "is a directory"},
		"not an archive":            {strings.NewReader(strings.Repeat("x", 2000)), sbxerr.Archive, "it is no tar, perhaps a compressed one"},
		"cut off in a file":         {bytes.NewReader(archive(t, good, tar.Header{Name: strings.Repeat("n", 90)}).Bytes()[:1024+512+50]), sbxerr.Archive, "unexpected EOF"},
		"broken off":                {io.MultiReader(bytes.NewReader(archive(t, good).Bytes()[:1024]), iotest.ErrReader(context.Canceled)), sbxerr.Canceled, "canceled"},
		"broken off at the end":     {io.MultiReader(archive(t, good), iotest.ErrReader(sbxerr.New(sbxerr.APIBroken, "x", "gone"))), sbxerr.APIBroken, "gone"},
		"endless padding":           {io.MultiReader(archive(t, good), zeros{}), sbxerr.Archive, "follow the end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.CopyIn(testContext(t), dir, tc.archive)
			refused(t, name, err, tc.code, tc.text)
			if got := names(t, dir); !slices.Equal(got, []string{"dir", "file", "link"}) {
				t.Errorf("there are %q", got)
			}
			if got := names(t, outside); len(got) != 0 {
				t.Errorf("outside there are %q", got)
			}
		})
	}
	s.limits.ArchiveEntries = 1
	_, err := s.CopyIn(testContext(t), dir, archive(t, good, good))
	refused(t, "entries", err, sbxerr.FileTooBig, "more than 1 entries")
	s.limits = DefaultLimits()
	s.limits.Bytes = 7
	_, err = s.CopyIn(testContext(t), dir, archive(t, good, good))
	refused(t, "bytes", err, sbxerr.FileTooBig, "more than 7 bytes")
	if got := names(t, dir); !slices.Equal(got, []string{"dir", "file", "link"}) {
		t.Errorf("there are %q", got)
	}
}

// A caller that goes away in the middle leaves nothing.
func TestCopyInThatIsCancelled(t *testing.T) {
	s, r, dir := session(t)
	ctx, cancel := context.WithCancel(testContext(t))
	source := &stalling{taken: make(chan struct{}), ctx: ctx, err: io.ErrUnexpectedEOF}
	go func() { <-source.taken; cancel() }()
	good := archive(t, tar.Header{Name: "good"})
	_, err := s.CopyIn(ctx, dir, io.MultiReader(bytes.NewReader(good.Bytes()[:1024]), source))
	if err == nil {
		t.Fatal("it succeeds")
	}
	r.running.Wait()
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestTreeRoundTrip(t *testing.T) {
	s, _, dir := session(t)
	for i := range 300 {
		write(t, fmt.Sprintf("%s/src/%d/%d", dir, i%7, i), strings.Repeat("z", i*997), 0o644)
	}
	own(t, dir)
	if _, err := s.MakeDir(testContext(t), dir+"/dst", nil, false); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		_, err := s.CopyOut(testContext(t), dir+"/src/.", 0, w)
		w.CloseWithError(err)
	}()
	copied, err := s.CopyIn(testContext(t), dir+"/dst", r)
	if err != nil || copied.Entries != 307 {
		t.Fatalf("%+v, %v", copied, err)
	}
	for i := range 300 {
		got, err := os.ReadFile(fmt.Sprintf("%s/dst/%d/%d", dir, i%7, i))
		if err != nil || len(got) != i*997 {
			t.Fatalf("%d: %d bytes, %v", i, len(got), err)
		}
	}
}
