package imageproc_test

import (
	"testing"

	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// BenchmarkProcess starts a process for a piece of work that fails at once, and awaits its end.
func BenchmarkProcess(b *testing.B) {
	for name, host := range map[string]bool{"sealed": false, "host": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p := start(b, b.Context(), "fail", "coded", func(j *imageproc.Job) { j.Host = host })
				if _, _, err := p.Next(imageproc.MaxMessage); err == nil {
					b.Fatal("it succeeds")
				}
			}
		})
	}
}
