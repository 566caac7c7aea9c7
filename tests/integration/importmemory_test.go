package integration

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// zstdBomb is a root file system of one file of size zeros, as a zstd frame of the
// given window. It is padded to stay below the limit of the ratio.
func zstdBomb(size, windowLog int) string {
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	_ = w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg})
	var b bytes.Buffer
	block := func(kind, n int, last uint32) []byte { // RFC 8878, section 3.1.1.2
		h := binary.LittleEndian.AppendUint32(nil, last|uint32(kind)<<1|uint32(n)<<3)
		return h[:3]
	}
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, byte(windowLog-10) << 3}
	b.Write(append(frame, block(0, 0, 1)...)) // an empty one: this is zstd
	b.Write([]byte{0x50, 0x2a, 0x4d, 0x18})   // one that is skipped
	pad := size / 100
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(pad)))
	b.Write(bytes.Repeat([]byte("x"), pad))
	const rle, most = 1, 128 << 10
	b.Write(frame)
	b.Write(block(0, head.Len(), 0))
	b.Write(head.Bytes())
	for left := size; left > 0; left -= most {
		b.Write(append(block(rle, min(left, most), 0), 0))
	}
	b.Write(append(block(rle, 1024, 1), 0))
	return b.String()
}

// Whatever is imported, and however much of it at once, the daemon needs little
// memory for it.
func TestImportMemory(t *testing.T) {
	const most = 100 << 20
	d := harness.Start(t)
	before := d.PeakMemory(t)
	for name, archive := range map[string]string{"window": zstdBomb(48<<20, 25), "wide": zstdBomb(160<<20, 27)} {
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				r := d.TryWith(archive, "image", "import", "-o", "json", "--name", fmt.Sprintf("%s-%d", name, i), "-")
				if out := r.Stdout + r.Stderr; r.Code != 0 && !strings.Contains(out, "SBX-113") && !strings.Contains(out, "window size") {
					t.Errorf("%s: %+v", name, r)
				}
			})
		}
		wg.Wait()
		if used := d.PeakMemory(t) - before; used > most {
			t.Errorf("%s: six imports at once took %d MiB", name, used>>20)
		} else {
			t.Logf("%s: %d MiB", name, used>>20)
		}
	}
}
