package main

import (
	"testing"

	"github.com/caisson-run/caisson/initproto/files"
)

// A panic is told as a failure of the request in which it came.
func TestPanicIsTold(t *testing.T) {
	var s *fileServer // has no connection to send on
	_, err := s.attempt(files.Request{Op: files.OpStat, Path: "/"})
	if failed, ok := err.(*fileFailure); !ok || failed.Reason != files.ReasonBug || failed.Path != "/" {
		t.Errorf("it is told as %v", err)
	}
}
