package fromhost

import (
	"archive/tar"
	"io"
	"os"
	"testing"
)

// discard reads everything, as a digest would.
type discard struct{}

func (discard) Entry(_ *tar.Header, content io.Reader) error {
	if content == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, content)
	return err
}

// BenchmarkHost plans and reads the base packages of this host.
func BenchmarkHost(b *testing.B) {
	if _, err := os.Stat(dpkgStatus); err != nil {
		b.Skip("this host has no dpkg")
	}
	r := Request{Packages: []string{"coreutils"}, Limits: ample}
	var p *Plan
	b.Run("Collect", func(b *testing.B) {
		for b.Loop() {
			var err error
			p, err = Collect(b.Context(), Host{Root: "/"}, r)
			must(b, err)
		}
		b.ReportMetric(float64(len(p.Entries)), "entries")
	})
	b.Run("Write", func(b *testing.B) {
		b.SetBytes(p.Bytes)
		for b.Loop() {
			_, err := Write(b.Context(), p, discard{})
			must(b, err)
		}
	})
}
