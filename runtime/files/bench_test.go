package files

import (
	"io"
	"os"
	"testing"
)

// BenchmarkStat is a small request on a process that is kept.
func BenchmarkStat(b *testing.B) {
	s, _, dir := session(b)
	for b.Loop() {
		if _, err := s.Stat(b.Context(), dir, false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is a small request on a process of its own. In a sandbox PID 1
// starts it, here the test.
func BenchmarkStart(b *testing.B) {
	s, _, dir := session(b)
	for b.Loop() {
		if _, err := s.fresh().Stat(b.Context(), dir, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s, _, dir := session(b)
	const size = 64 << 20
	if err := os.WriteFile(dir+"/file", make([]byte, size), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		if err := s.Read(b.Context(), dir+"/file", 0, 0, func(Info) error { return nil }, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	s, _, dir := session(b)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if _, err := s.Write(b.Context(), dir+"/file", nil, false, io.LimitReader(zeros{}, size)); err != nil {
			b.Fatal(err)
		}
	}
}
