package main

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/initproto/files"
)

// answers lets do answer, and returns the entries and the content that it sent.
func answers(t *testing.T, do func(s *fileServer) error) (entries []files.Info, content string, err error) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer syscall.Close(pair[0])
		done <- do(&fileServer{fileConn: fileConn{fd: pair[0]}})
	}()
	defer syscall.Close(pair[1])
	for daemon := (&fileConn{fd: pair[1]}); ; {
		kind, body, err := daemon.recv()
		switch {
		case err == errFilesLost:
			return entries, content, <-done
		case err != nil:
			t.Fatal(err)
		case kind == files.KindData:
			content += string(body)
		case kind == files.KindEntry:
			i, err := files.DecodeInfo(body)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, i)
		}
	}
}

// zombie returns the directory in /proc of a process that has ended: its symlinks are
// there and cannot be read (proc_pid_exe(5)).
func zombie(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("true")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // of its output is nothing left
	for b := make([]byte, 1); ; {
		if _, err := out.Read(b); err != nil { // it has closed it
			break
		}
	}
	for dir := "/proc/" + strconv.Itoa(cmd.Process.Pid); ; {
		if p, ok := readStat(cmd.Process.Pid); !ok || p.ended() {
			return dir
		}
	}
}

// Of a symlink that cannot be read all else is told.
func TestUnreadableLink(t *testing.T) {
	dir := zombie(t)
	_, _, err := answers(t, func(s *fileServer) error { return s.stat(dir+"/exe", false) })
	if failed, ok := err.(*fileFailure); !ok || failed.Errno == 0 || failed.Path != dir+"/exe" {
		t.Errorf("stat: %v", err)
	}
	list, _, err := answers(t, func(s *fileServer) error {
		_, err := s.list(files.Request{Path: dir, Depth: 2, Limit: 10_000})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, i := range list {
		if i.Path == "exe" {
			if i.Type != files.TypeSymlink || i.Link != "" {
				t.Errorf("it is listed as %+v", i)
			}
			return
		}
	}
	t.Errorf("it is not among %d entries", len(list))
}

// A failure can be told of any path, also of one that is longer than an answer holds.
func TestFailureOfALongPath(t *testing.T) {
	path := "/" + strings.Repeat("d/", files.MaxPath)
	for _, err := range []error{failedAt(path, syscall.EIO), failedFor(files.ReasonDepth, path)} {
		failed, ok := err.(*fileFailure)
		if !ok {
			t.Fatal(err)
		}
		if _, err := files.DecodeFailure(files.Failure(*failed).Frame()[files.HeaderSize:]); err != nil {
			t.Errorf("reason %d: %v", failed.Reason, err)
		}
	}
}
