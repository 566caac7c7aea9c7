package main

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// driver lets the daemon of the test suites, whose helpers speak testing.TB,
// be driven by a program. A fatal failure cleans up and ends the process.
type driver struct {
	testing.TB
	ctx      context.Context // until the user interrupts
	failed   bool
	cleanups []func()
}

func (d *driver) Context() context.Context { return d.ctx }

func (d *driver) Helper()          {}
func (d *driver) Failed() bool     { return d.failed }
func (d *driver) Cleanup(f func()) { d.cleanups = append(d.cleanups, f) }
func (d *driver) Log(args ...any)  { fmt.Fprintln(os.Stderr, args...) }

func (d *driver) Logf(format string, args ...any) { d.Log(fmt.Sprintf(format, args...)) }

func (d *driver) Error(args ...any) {
	d.failed = true
	d.Log(args...)
}

func (d *driver) Errorf(format string, args ...any) { d.Error(fmt.Sprintf(format, args...)) }

func (d *driver) Fatal(args ...any) {
	d.Error(args...)
	d.finish()
	os.Exit(1)
}

func (d *driver) Fatalf(format string, args ...any) { d.Fatal(fmt.Sprintf(format, args...)) }

// TempDir makes a directory that is gone at the end.
func (d *driver) TempDir() string {
	dir, err := os.MkdirTemp("", "caisson-bench-")
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			d.Error(err)
		}
	})
	return dir
}

// finish runs the cleanups, newest first. One that fails fatally does not run
// again.
func (d *driver) finish() {
	for len(d.cleanups) > 0 {
		last := d.cleanups[len(d.cleanups)-1]
		d.cleanups = d.cleanups[:len(d.cleanups)-1]
		last()
	}
}
