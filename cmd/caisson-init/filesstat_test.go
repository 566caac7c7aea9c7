package main

import (
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/initproto/files"
)

// A time that no answer of the API can hold is told as the nearest that one can.
func TestTimesAreBounded(t *testing.T) {
	for sec, year := range map[int64]int{math.MinInt64: 1, -1: 1969, 0: 1970, math.MaxInt64: 9999} {
		i := infoOf(&syscall.Stat_t{Mtim: syscall.Timespec{Sec: sec}})
		if got := time.Unix(i.Mtime, 0).UTC().Year(); got != year {
			t.Errorf("%d is told as of the year %d, want %d", sec, got, year)
		}
	}
}

// A listing that runs out of descriptors says that there is more.
func TestListWithFewDescriptors(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(top+strings.Repeat("/d", 40), 0o755); err != nil {
		t.Fatal(err)
	}
	next, err := syscall.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(next)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(next) + 20
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	var done files.Done
	list, _, err := answers(t, func(s *fileServer) (err error) {
		done, err = s.list(files.Request{Path: top, Depth: files.MaxDepth, Limit: 1000})
		return err
	})
	if err != nil || !done.Truncated || len(list) == 0 || len(list) == 40 {
		t.Errorf("%d of 40 directories, %+v, %v", len(list), done, err)
	}
}
