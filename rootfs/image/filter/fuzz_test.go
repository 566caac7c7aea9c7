package filter

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// filterCodes are all that a layer can be refused with.
var filterCodes = []sbxerr.Code{sbxerr.ImageFormat, sbxerr.ImageContent, sbxerr.ImageTooBig}

// FuzzFilter feeds two layers of arbitrary bytes to the filter. Whatever comes
// out must keep the filter's promise, which violations checks by itself.
func FuzzFilter(f *testing.F) {
	for _, tc := range ruleCases {
		first := tarOf(f, tc.layers[0]...)
		last := tarOf(f, tc.layers[len(tc.layers)-1]...)
		f.Add(first, last)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		out, err := filterAll(NewFilter(smallLimits()), first, second)
		if err != nil && !slices.Contains(filterCodes, sbxerr.Of(err)) {
			t.Errorf("code of %v", err)
		}
		if bad := violations(t, out); bad != nil {
			t.Errorf("got through: %q", bad)
		}
	})
}

// The vocabulary of FuzzEntries: few names, so that entries meet.
var (
	fuzzNames = []string{
		"a", "a/b", "a/b/c", "d", "d/e", "./a", "a/../d", "../a", "/a", "dev", "dev/null", "proc", "tmp", "tmp/x", "etc", "etc/passwd",
		".wh.a", "a/.wh.b", "a/.wh..wh..opq", ".wh..wh..opq", ".wh.", "d/.wh...", ".wh.d/x", "a/b/.wh.c", "d/.wh.e", "a/b/.wh..wh..opq", ".",
	}
	fuzzTypes = []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo, '7'}
	fuzzModes = []int64{0o644, 0o755, 0o4755, 0o2755, 0o1777, 0o7777, -1}
	fuzzIDs   = []int{0, 1000, 65535, 65536, -1}
)

// FuzzEntries makes entries out of bytes: four for each, and 0xff for the next
// layer. Unlike FuzzFilter it spends no time on tar's checksums. Entries that
// are refused are dropped, so that the rest goes on.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 1, 0, 0, 0, 0xff, 16, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{3, 2, 0, 0, 4, 0, 0, 0, 0, 3, 3, 0})
	f.Add([]byte{2, 0, 0, 0, 0xff, 18, 0, 0, 0, 2, 0, 0, 0, 0xff, 17, 0, 0, 0, 0, 2, 3, 0, 1, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 4, 1, 0, 0, 0xff, 17, 0, 0, 0, 1, 1, 0, 0, 0xff, 2, 0, 0, 0, 19, 0, 0, 0})
	f.Fuzz(checkEntries)
}

// TestRandomEntries is FuzzEntries without the fuzzer: a fixed sample in every
// run of the tests.
func TestRandomEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ops := make([]byte, 40+random.IntN(160))
		for i := range ops {
			ops[i] = byte(random.Uint32())
			if random.IntN(30) == 0 {
				ops[i] = 0xff
			}
		}
		if checkEntries(t, ops); t.Failed() {
			t.Fatalf("with %x", ops)
		}
	}
}

func checkEntries(t *testing.T, ops []byte) {
	f := NewFilter(smallLimits())
	var buf bytes.Buffer
	var layers [][]byte
	var taken [][]ent // what was not refused, for each layer
	var now []ent
	w := f.layer(&buf, nil)
	next := func() {
		taken, now = append(taken, now), nil
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		layers = append(layers, slices.Clone(buf.Bytes()))
		buf.Reset()
		w = f.layer(&buf, nil)
	}
	for len(ops) >= 4 && len(layers) < 5 {
		if ops[0] == 0xff {
			next()
			ops = ops[1:]
			continue
		}
		h := fuzzHeader(ops[:4])
		ops = ops[4:]
		err := w.Entry(h, strings.NewReader(strings.Repeat("x", int(h.Size))))
		if err == nil {
			now = append(now, ent{Header: *h})
		} else if !slices.Contains(filterCodes, sbxerr.Of(err)) {
			t.Errorf("code of %v", err)
		}
	}
	next()
	if bad := violations(t, layers); bad != nil {
		t.Errorf("got through: %q", bad)
	}
	checkReplay(t, layers)
	in, out := visible{}, visible{}
	for i := range layers {
		in = in.apply(taken[i])
		out = out.apply(list(t, layers[i]))
	}
	// A directory more is fine: a whiteout brings its parents, even when
	// another one hides them.
	for name, flag := range out {
		if flag == tar.TypeDir && in[name] == 0 {
			delete(out, name)
		}
	}
	if !maps.Equal(in, out) {
		t.Errorf("the layers show %q\nwhat was taken shows %q", out, in)
	}
}

// visible is what a sandbox sees of an image: names and types. It is how the
// image specification puts layers together, written down once more.
type visible map[string]byte

func (v visible) apply(layer []ent) visible {
	v = maps.Clone(v)
	for _, e := range layer {
		dir, base := path.Split(path.Clean(e.Name))
		hidden, isWhiteout := strings.CutPrefix(base, whiteoutPrefix)
		switch {
		case base == opaqueName:
			v.hide(path.Clean(dir), false)
		case isWhiteout:
			v.hide(path.Join(dir, hidden), true)
		}
	}
	for _, e := range layer {
		v.add(e)
	}
	return v
}

func (v visible) hide(name string, itself bool) {
	for other := range v {
		if itself && other == name || strings.HasPrefix("./"+other, "./"+strings.TrimPrefix(name+"/", "./")) {
			delete(v, other)
		}
	}
}

func (v visible) add(e ent) {
	name := path.Clean(e.Name)
	special := strings.HasPrefix(name, "dev/") || strings.HasPrefix(name, "proc/")
	isWhiteout := strings.HasPrefix(path.Base(name), whiteoutPrefix)
	node := slices.Contains([]byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo}, e.Typeflag)
	if special || node || name == "." || isWhiteout {
		return
	}
	if !(e.Typeflag == tar.TypeDir && v.isDir(name)) {
		v.hide(name, true)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		v[dir] = tar.TypeDir
	}
	v[name] = e.Typeflag
	if e.Typeflag == tar.TypeLink {
		v[name] = tar.TypeReg
	}
}

func (v visible) isDir(name string) bool { return name == "." || v[name] == tar.TypeDir }

func fuzzHeader(op []byte) *tar.Header {
	pick := func(b byte, n int) int { return int(b) % n }
	h := &tar.Header{
		Name:     fuzzNames[pick(op[0], len(fuzzNames))],
		Typeflag: fuzzTypes[pick(op[1], len(fuzzTypes))],
		Linkname: fuzzNames[pick(op[2], len(fuzzNames))],
		Mode:     fuzzModes[pick(op[3], len(fuzzModes))],
		Uid:      fuzzIDs[pick(op[3]/8, len(fuzzIDs))],
		Gid:      fuzzIDs[pick(op[3]/64, len(fuzzIDs))],
		ModTime:  time.Unix(int64(int8(op[3]))<<32, 7),
	}
	if h.Typeflag == tar.TypeReg && !strings.Contains(h.Name, whiteoutPrefix) {
		h.Size = int64(op[2] % 3)
	}
	return h
}

// checkReplay filters clean layers again: nothing may be left to object to and
// nothing may change.
func checkReplay(t *testing.T, layers [][]byte) {
	t.Helper()
	f := NewFilter(smallLimits())
	again, err := filterAll(f, layers...)
	if err != nil {
		t.Fatalf("a clean layer is refused: %v", err)
	}
	for i := range layers {
		if !bytes.Equal(again[i], layers[i]) {
			t.Errorf("layer %d changed:\n was %q\n now %q", i+1, names(list(t, layers[i])), names(list(t, again[i])))
		}
	}
	if n := f.Report().Stripped; len(n) > 0 {
		t.Errorf("stripped %v of clean layers", n)
	}
}

// FuzzImport feeds whole archives.
func FuzzImport(f *testing.F) {
	layer := tarOf(f, file("a", "text"))
	f.Add(layer)
	f.Add(gz(f, layer))
	f.Add(zst(f, layer))
	f.Add(tarOf(f, newLayout(f, plainLayer(layer)).seal(f)...))
	f.Add(tarOf(f, dockerArchive(f, layer)...))
	known := append(slices.Clone(filterCodes), sbxerr.Config)
	f.Fuzz(func(t *testing.T, data []byte) {
		sink := newMemSink()
		o := options(t)
		_, err := Import(t.Context(), bytes.NewReader(data), o, sink)
		if err != nil {
			if !slices.Contains(known, sbxerr.Of(err)) {
				t.Errorf("code of %v", err)
			}
			return
		}
		_, _, layers := sink.image(t, "test")
		if bad := violations(t, layers); bad != nil {
			t.Errorf("got through: %q", bad)
		}
	})
}

// FuzzDecodeJSON holds decodeJSON to its word at the top of a document: what
// it takes has each key once, whatever its case.
func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[{"b":null}]}`))
	f.Add([]byte(`{"a":1,"A":{}}`))
	f.Add([]byte(`{"Labels":{"a":"","A":""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var doc ociDocument
		if decodeJSON(data, &doc) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(data))
		if open, err := d.Token(); err != nil || open != json.Delim('{') {
			return
		}
		var keys []string
		for d.More() {
			key, err := d.Token()
			var value json.RawMessage
			if err = errors.Join(err, d.Decode(&value)); err != nil {
				t.Fatalf("%q was taken: %v", data, err)
			}
			if slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, key.(string)) }) {
				t.Errorf("%q has %q twice", data, key)
			}
			keys = append(keys, key.(string))
		}
	})
}

// TestMemoryStaysFlat passes a large file through an import of which nothing
// is kept. The daemon must not grow with it.
func TestMemoryStaysFlat(t *testing.T) {
	const size = 128 << 20 // four times what it may grow by
	pr, pw := io.Pipe()
	go func() {
		w := tar.NewWriter(pw)
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: size, Mode: 0o644})
		if err == nil {
			_, err = io.CopyN(w, zeroReader{}, size)
		}
		if err == nil {
			err = w.Close()
		}
		pw.CloseWithError(err)
	}()
	o := options(t)
	o.Limits = DefaultLimits()
	peak := watchHeap(t)
	r, err := Import(t.Context(), pr, o, Discard)
	if err != nil || r.Report.Bytes != size {
		t.Fatalf("result %+v, err %v", r, err)
	}
	if grown := peak(); grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB for a file of %d MiB", grown>>20, size>>20)
	}
}
