package ctrd

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkContainer reports the median of each step of a container's life, in
// milliseconds. PID 1 is killed before the delete, as the daemon does.
func BenchmarkContainer(b *testing.B) {
	for _, group := range []string{"", "all"} {
		b.Run("group="+group, func(b *testing.B) {
			e := connect(b, supervise(b))
			if group != "" { // the shim ends with its last container
				first := sandbox(b, "first")
				first.Group = group
				start(b, e, first)
			}
			c := sandbox(b, "bench")
			c.Group = group
			steps := map[string][]time.Duration{}
			timed := func(step string, fn func() error) {
				began := time.Now()
				if err := fn(); err != nil {
					b.Fatal(err)
				}
				steps[step] = append(steps[step], time.Since(began))
			}
			for i := 0; b.Loop(); i++ {
				c.ID = fmt.Sprintf("bench%d", i)
				c.Spec.Linux.CgroupsPath = testCgroup + "/" + c.ID
				var pid int
				timed("create", func() (err error) { pid, err = e.Create(b.Context(), c); return err })
				timed("start", func() error { return e.Start(b.Context(), c.ID) })
				timed("kill", func() error { return syscall.Kill(pid, syscall.SIGKILL) })
				timed("delete", func() error { return e.Delete(b.Context(), c.ID) })
			}
			for step, took := range steps {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, step+"-ms")
			}
		})
	}
}
