package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

// filesSocket is the descriptor on which the daemon speaks.
const filesSocket = 0

// runFiles answers requests until the daemon closes the connection, and returns
// the exit status.
func runFiles() int {
	var stat syscall.Stat_t
	if err := syscall.Fstat(filesSocket, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return files.ExitSetup
	}
	if err := syscall.SetNonblock(filesSocket, false); err != nil {
		return files.ExitSetup
	}
	syscall.CloseOnExec(filesSocket)
	syscall.Umask(0) // modes are given exactly
	s := &fileServer{fileConn: fileConn{fd: filesSocket}}
	return s.serve()
}

// fileServer works on files for the daemon, one request after the other.
type fileServer struct {
	fileConn
}

func (s *fileServer) serve() int {
	for {
		kind, body, err := s.recv()
		if err == errFilesLost {
			return files.ExitDone
		}
		if err != nil || kind != files.KindRequest {
			return files.ExitProtocol
		}
		switch err := s.answer(body); err {
		case nil:
		case errFilesLost:
			return files.ExitDone
		default:
			return files.ExitProtocol
		}
	}
}

// answer does what one request asks. Its error ends the process.
func (s *fileServer) answer(body []byte) error {
	r, err := files.DecodeRequest(body)
	if err == files.ErrVersion {
		return s.send(files.Failure{Reason: files.ReasonVersion}.Frame())
	}
	if err != nil {
		return err
	}
	s.inputOpen = r.Op == files.OpWrite || r.Op == files.OpCopyIn
	done, err := s.attempt(r)
	if failed, ok := err.(*fileFailure); ok {
		if err := s.send(files.Failure(*failed).Frame()); err != nil {
			return err
		}
		return s.drain()
	}
	if err != nil {
		return err
	}
	return s.send(done.Frame())
}

// attempt does what r asks. A panic fails that request alone: it comes between two
// frames, and nothing but the connection is left of a request. The end of the process
// would tell less, for the sandbox can end it too.
func (s *fileServer) attempt(r files.Request) (done files.Done, err error) {
	defer func() {
		if recover() != nil {
			err = failedFor(files.ReasonBug, r.Path)
		}
	}()
	return s.do(r)
}

func (s *fileServer) do(r files.Request) (files.Done, error) {
	switch r.Op {
	case files.OpStat:
		return files.Done{}, s.stat(r.Path, r.Flags&files.FlagFollow != 0)
	case files.OpList:
		return s.list(r)
	case files.OpRead:
		return files.Done{}, s.read(r)
	case files.OpWrite:
		return files.Done{}, s.write(r)
	case files.OpMakeDir:
		return files.Done{}, s.makeDir(r)
	case files.OpMove:
		return files.Done{}, s.move(r)
	case files.OpRemove:
		return files.Done{}, s.remove(r)
	case files.OpWatch:
		return files.Done{}, s.watch(r)
	case files.OpCopyOut:
		return files.Done{}, s.copyOut(r.Path)
	case files.OpCopyIn:
		return s.copyIn(r.Path)
	}
	return files.Done{}, errFilesProtocol
}

// fileFailure is an error that is told to the daemon. All others end the process.
type fileFailure files.Failure

func (f *fileFailure) Error() string { return f.Path + ": " + f.Errno.Error() }

// failedAt returns err as a failure of path; nil stays nil.
func failedAt(path string, err error) error {
	switch err := err.(type) {
	case nil:
		return nil
	case syscall.Errno:
		return &fileFailure{Errno: err, Path: told(path)}
	}
	return err
}

func failedFor(reason files.Reason, path string) error {
	return &fileFailure{Reason: reason, Path: told(path)}
}

// told is as much of a path as an answer can hold: what is deep in a tree may have
// a longer one.
func told(path string) string { return path[:min(len(path), files.MaxPath)] }
