package filter

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestDocumentCost: no manifest or config costs more than a request may.
func TestDocumentCost(t *testing.T) {
	fill := func(part string) string { return strings.Repeat(part, (bound.Size-100)/len(part)) }
	for name, text := range map[string]string{
		"deep":            fill(`{"a":`),
		"deep list":       fill("["),
		"many fields":     "{" + fill(`"a":1,`),
		"different":       "{" + numbered(`"%d":1,`),
		"many layers":     `{"layers":[` + fill(`{},`) + "{}]}",
		"many empty":      `{"config":{"Env":[` + fill(`"",`) + `""]}}`,
		"long key":        `{"` + fill("K") + `":1}`,
		"folded keys":     "{" + numbered("\"\u212A%d\":1,"),
		"long number":     `{"a":` + fill("9") + "}",
		"escaped":         `{"a":"` + fill(`\u0001`) + `"}`,
		"free, by fields": `{"config":{"Labels":{` + numbered(`"%d":"",`),
	} {
		t.Run(name, func(t *testing.T) {
			bound.Check(t, len(text), func() {
				var v map[string]any
				_ = decodeJSON([]byte(text), &v) // it may be refused
			})
		})
	}
}

// numbered is a text of at most the size that is bounded, whose parts differ.
func numbered(format string) string {
	var b strings.Builder
	for n := 0; b.Len() < bound.Size-1000; n++ {
		fmt.Fprintf(&b, format, n)
	}
	return b.String()
}

// TestLayerCost: no layer that comes uncompressed costs more than a request may.
func TestLayerCost(t *testing.T) {
	layer := func(one func(n int) ent) []byte {
		var list []ent
		for n := range (bound.Size - 4096) / 512 {
			list = append(list, one(n))
		}
		return tarOf(t, list...)
	}
	deep := strings.Repeat("a/", 49)
	pax := tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("p/", 2000) + "f", Format: tar.FormatPAX, PAXRecords: map[string]string{"C.x": strings.Repeat("x", 700_000)}}
	for name, b := range map[string][]byte{
		"files":        layer(func(n int) ent { return file(fmt.Sprintf("f%d", n), "") }),
		"deep files":   layer(func(n int) ent { return file(fmt.Sprintf("%sf%d", deep, n), "") }),
		"deep folders": layer(func(n int) ent { return dir(fmt.Sprintf("%d/%s", n, deep[:90])) }),
		"whiteouts":    layer(func(n int) ent { return file(fmt.Sprintf("d%d/.wh.x", n), "") }),
		"opaque":       layer(func(n int) ent { return file(deep[:80]+".wh..wh..opq", "") }),
		"one name":     layer(func(int) ent { return file("f", "") }),
		"links": layer(func(n int) ent {
			return ent{tar.Header{Typeflag: tar.TypeLink, Name: fmt.Sprint("l", n), Linkname: fmt.Sprint("l", n-1)}, ""}
		}),
		"symlinks": layer(func(n int) ent {
			return ent{tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprint("s", n), Linkname: fmt.Sprint("s", n+1)}, ""}
		}),
		"records": tarOf(t, ent{pax, ""}),
	} {
		t.Run(name, func(t *testing.T) {
			bound.Check(t, len(b), func() {
				_ = NewFilter(Limits{Bytes: 64 << 20, Entries: 400_000, NameBytes: 64 << 20, Layers: 10, DocumentBytes: 4 << 20, Ratio: 200}).Layer(strings.NewReader(string(b)), io.Discard) // likewise
			})
		})
	}
}
