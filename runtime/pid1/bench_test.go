package pid1

import (
	"os"
	"testing"
)

// busybox is a static program, so the figure is not that of a dynamic linker.
const busybox = "/bin/busybox"

func BenchmarkStartExit(b *testing.B) {
	r := runInit(b)
	benchmarkStartExit(b, r, command(staticTrue()...))
}

func BenchmarkStartExitPID1(b *testing.B) {
	r := runPID1(b)
	cmd := inside("")
	cmd.Args = staticTrue()
	benchmarkStartExit(b, r, cmd)
}

func staticTrue() []string {
	if _, err := os.Stat(busybox); err == nil {
		return []string{busybox, "true"}
	}
	return []string{"/bin/true"}
}

func benchmarkStartExit(b *testing.B, r *realInit, cmd Command) {
	ctx := b.Context()
	out := newPipe(b)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = out.r, out.w, out.w
	for b.Loop() {
		cmd.Number++
		e, err := r.Start(ctx, cmd)
		if err != nil {
			b.Fatal(err)
		}
		if exit, err := e.Wait(ctx); err != nil || exit.Code != 0 {
			b.Fatalf("%+v, %v", exit, err)
		}
		if err := e.Release(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/command")
}
