package localtree

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnpackKeepsHoles: an archive that is long and empty takes no space here. The
// control copies the same as it is.
func TestUnpackKeepsHoles(t *testing.T) {
	content := make([]byte, 16<<20+3)
	content[0], content[9<<20], content[len(content)-1] = 1, 2, 3
	tail := make([]byte, 4<<20) // ends in a hole
	for name, want := range map[string][]byte{"middle": content, "end": tail, "short": []byte("x\x00"), "empty": nil} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Size: int64(len(want)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := tempDir(t)
		path := filepath.Join(dir, "file")
		counts, err := Unpack(&b, path)
		if err != nil || counts.Bytes != int64(len(want)) {
			t.Fatal(counts, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d, or others; %v", name, len(got), len(want), err)
		}
		if n := taken(t, path); n > 128<<10 {
			t.Errorf("%s: it takes %d bytes", name, n)
		}
	}
	plain := filepath.Join(tempDir(t), "plain")
	f, err := os.Create(plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := taken(t, plain); n < int64(len(content)) {
		t.Errorf("control: a plain copy takes %d bytes", n)
	}
}

func taken(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
