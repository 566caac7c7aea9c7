package main

import (
	"os"
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

// restless makes entries of all kinds under dir that take each other's names all the
// time, and others that come and go, until the test ends.
func restless(t *testing.T, dir string) {
	t.Helper()
	for i, err := range []error{
		os.Mkdir(dir+"/0", 0o755), os.WriteFile(dir+"/0/in", nil, 0o644), os.WriteFile(dir+"/1", []byte("content"), 0o644),
		os.Symlink("1", dir+"/2"), syscall.Mkfifo(dir+"/3", 0o600),
	} {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	const exchange = 2 // RENAME_EXCHANGE
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			default:
			}
			_ = renameAt(atCwd, dir+"/"+strconv.Itoa(n%4), atCwd, dir+"/"+strconv.Itoa((n+1)%4), exchange)
			link, sub := dir+"/link", dir+"/sub"
			_, _ = os.Symlink("1", link), os.Mkdir(sub, 0o755)
			_ = os.WriteFile(sub+"/file", []byte("content"), 0o644)
			_, _, _ = os.Remove(link), os.Remove(sub+"/file"), os.Remove(sub)
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
}

// What comes, goes and becomes another kind of entry ends neither a listing nor a copy.
func TestRestlessDirectory(t *testing.T) {
	dir := t.TempDir()
	restless(t, dir)
	for range 300 {
		list, _, err := answers(t, func(s *fileServer) error {
			_, err := s.list(files.Request{Path: dir, Depth: 9, Limit: 10_000})
			return err
		})
		if err != nil || len(list) < 4 {
			t.Errorf("a listing of %d entries ends with %v", len(list), err)
		}
		list, _, err = answers(t, func(s *fileServer) error { return s.copyOut(dir) })
		if err != nil || len(list) < 5 {
			t.Errorf("a copy of %d entries ends with %v", len(list), err)
		}
	}
}

// The length that is stated of a file is that of the content which comes, also where it
// changes meanwhile and where the file system does not know it.
func TestCopiedLengths(t *testing.T) {
	path := t.TempDir() + "/file"
	long := strings.Repeat("x", 3*files.MaxData+1)
	for size := 0; size < len(long); size += files.MaxData / 2 {
		if err := os.WriteFile(path, []byte(long[:size]), 0o644); err != nil {
			t.Fatal(err)
		}
		list, content, err := answers(t, func(s *fileServer) error { return s.copyOut(path) })
		if err != nil || len(list) != 1 || list[0].Size != int64(size) || content != long[:size] {
			t.Errorf("of %d bytes came %d, %+v, %v", size, len(content), list, err)
		}
	}
	list, content, err := answers(t, func(s *fileServer) error { return s.copyOut("/proc/self/status") })
	if err != nil || content == "" || list[0].Size != int64(len(content)) {
		t.Errorf("of a file in /proc came %d bytes, %+v, %v", len(content), list, err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n += 100 {
			select {
			case <-end:
				return
			default:
				_ = os.WriteFile(path, []byte(long[:n%files.MaxData]), 0o644)
			}
		}
	}()
	defer func() { close(end); <-ended }()
	for range 300 {
		list, content, err := answers(t, func(s *fileServer) error { return s.copyOut(path) })
		if err != nil || list[0].Size != int64(len(content)) {
			t.Errorf("of a file that changes came %d bytes, %+v, %v", len(content), list, err)
		}
	}
}
