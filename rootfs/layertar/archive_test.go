package layertar

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// packed is a tar of headers. Files hold their names.
func packed(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func through(t *testing.T, data []byte, w io.WriteCloser, out *bytes.Buffer) []byte {
	t.Helper()
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, data []byte) []byte {
	var out bytes.Buffer
	return through(t, data, gzip.NewWriter(&out), &out)
}

func zstandard(t *testing.T, data []byte) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	return through(t, data, w, &out)
}

// Archives of a directory d with a file f, packed by xz(1) and bzip2(1).
const (
	xzTar    = "/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4Cf/AHJdADILvBunjDRE4cIHdekAYR0rBGk8lCvFzh4vp2Rq0s8YxLhLxUBkUXE9BAkAsxnwv1va9qDiyElPG+pYJIgi/ErS3nBPipZ2TiSR2IYMeW9iC+x9GW2l1eJEqXz+fzUyn/Xvtz9GfB5xJ9kWYJ56ve5QAAAAAE4d+u9E+ODyAAGOAYBQAABOEGpbscRn+wIAAAAABFla"
	bzip2Tar = "QlpoOTFBWSZTWfpOuBsAAJ77kMmAAEJAAP+AAANlAJ4ABAAACCAAdQkkTQ0NA0yABVKmm1NGaJ6QNMn6puTtjauCkQKYRAjTSi3W5W1zd0ZOyEOQTJdLd4hFKwJjApQGmOIjM57tKYa1iKhWWzwcHDVqleSlVEH8XckU4UJD6TrgbA=="
)

func decoded(t *testing.T, s string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestUnpack: an archive is known by its content, and its content merges with the image.
func TestUnpack(t *testing.T) {
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o750} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to} }
	file := func(name string) tar.Header { return tar.Header{Name: name} }
	plain := packed(t, dir("d"), tar.Header{Name: "d/f", Uid: 7, Gid: 8}, link("d/l", "f"))
	const unpacked = "x/ 755\nx/d/ 750\nx/d/f 644\nx/d/l 777 -> f"
	for name, tt := range map[string]struct {
		data []byte
		dest string
		want string
	}{
		"plain":                     {plain, "/x", unpacked},
		"gzip":                      {zipped(t, plain), "/x", unpacked},
		"zstd":                      {zstandard(t, plain), "/x/", unpacked},
		"xz":                        {decoded(t, xzTar), "/x/", "x/ 755\nx/d/ 755\nx/d/f 644"},
		"bzip2":                     {decoded(t, bzip2Tar), "/x/", "x/ 755\nx/d/ 755\nx/d/f 644"},
		"gzip of something else":    {zipped(t, []byte("no archive")), "/x", "x 644"},
		"damaged gzip":              {[]byte("\x1f\x8bnothing"), "/x", "x 644"},
		"something else":            {[]byte("text"), "/x/", "x/ 755\nx/archive 644"},
		"an empty file":             {nil, "/x", "x 644"},
		"through a link":            {packed(t, file("bin/tool")), "/", "usr/bin/tool 644"},
		"a directory over a link":   {packed(t, dir("bin"), file("bin/tool")), "/", "usr/bin/tool 644"},
		"a link over a directory":   {packed(t, link("usr", "/x")), "/", `"/usr" of the image is a directory`},
		"a file over a directory":   {packed(t, file("usr")), "/", `"/usr" of the image is a directory`},
		"twice":                     {packed(t, file("a"), dir("b"), file("b/c"), file("a")), "/", "b/ 750\nb/c 644\na 644"},
		"through its own link":      {packed(t, link("l", "/usr/bin"), file("l/sh")), "/", "through the link"},
		"above":                     {packed(t, file("../a")), "/x", "out of the archive"},
		"absolute":                  {packed(t, file("/a"), file("./b")), "/x", "x/ 755\nx/a 644\nx/b 644"},
		"a whiteout":                {packed(t, file(".wh.usr")), "/", "removal of a file"},
		"a hard link":               {packed(t, file("a"), hard("b", "a"), hard("c", "b")), "/", "a 644\nb 644 -> a\nc 644 -> a"},
		"a hard link to a lost one": {packed(t, file("a"), hard("b", "a"), file("a")), "/", "b 644\na 644"},
		"a hard link to the image":  {packed(t, hard("b", "bin/sh")), "/", "usr/bin/sh 644\nb 644 -> usr/bin/sh"},
		"a hard link to nothing":    {packed(t, hard("b", "absent")), "/", "no file of the archive or of the image"},
		"a device":                  {packed(t, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1}), "/", "null 644"},
		"implied directories":       {packed(t, file("p/q/r")), "/", "p/ 755\np/q/ 755\np/q/r 644"},
	} {
		from, into := tree(t), tree(t, "usr/bin/sh", "bin -> usr/bin")
		if err := os.WriteFile(filepath.Join(from.Name(), "archive"), tt.data, 0o644); err != nil {
			t.Fatal(err)
		}
		c := Copy{From: from, Into: into, Sources: []string{"arch*"}, Dest: tt.dest, Unpack: true, Limits: Limits{Bytes: 1 << 20, Entries: 10}}
		check(t, name, c, tt.want)
	}
}
