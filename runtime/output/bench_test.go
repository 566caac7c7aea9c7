package output

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// BenchmarkFill is a process that writes as fast as it can, within the limit
// and past it, with readers that follow.
func BenchmarkFill(b *testing.B) {
	const size = 256 << 20
	for _, limit := range []int64{10 << 20, 1 << 30} {
		for _, readers := range []int{0, 1, 10, 100} {
			b.Run(fmt.Sprintf("limit=%dM/readers=%d", limit>>20, readers), func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					benchFill(b, limit, size, readers)
				}
			})
		}
	}
}

func benchFill(b *testing.B, limit, size int64, readers int) {
	s := create(b, limit)
	r, w := pipe(b)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			if err := copyTo(s, context.Background(), io.Discard, 0, true); err != nil {
				b.Error(err)
			}
		})
	}
	flood := child(b, "flood", []string{fmt.Sprint(size)}, w)
	w.Close()
	start := time.Now()
	if err := s.Fill(context.Background(), r); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(size)/1e6/time.Since(start).Seconds(), "fill-MB/s")
	s.Finish()
	all.Wait()
	if err := flood.Wait(); err != nil {
		b.Error(err)
	}
	b.StopTimer()
	if err := s.Close(); err != nil {
		b.Error(err)
	}
	_ = r.Close()
	_ = Remove(s.o.Path)
	b.StartTimer()
}

// BenchmarkLive is the way of one byte from a write in another goroutine's
// pipe to a reader that waits for it.
func BenchmarkLive(b *testing.B) {
	for _, idle := range []int{0, 100} {
		b.Run(fmt.Sprintf("others=%d", idle), func(b *testing.B) {
			s := create(b, 1<<30)
			r, w := pipe(b)
			filled := filling(s, r)
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for range idle {
				all.Go(func() { _ = copyTo(s, ctx, io.Discard, 0, true) })
			}
			got := make(signal, 1)
			all.Go(func() { _ = copyTo(s, ctx, got, 0, true) })
			for b.Loop() {
				write(b, w, []byte("x"))
				<-got
			}
			cancel()
			all.Wait()
			w.Close()
			<-filled
		})
	}
}

// BenchmarkSettle is the end of a command that wrote a line.
func BenchmarkSettle(b *testing.B) {
	s := create(b, 1<<20)
	r, w := pipe(b)
	filled := filling(s, r)
	for b.Loop() {
		write(b, w, []byte("a line of output\n"))
		if err := s.Settle(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
	<-filled
}
