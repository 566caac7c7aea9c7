package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/initproto/files"
)

const (
	errFilesLost     = initproto.FormatError("connection closed by the daemon")
	errFilesProtocol = initproto.FormatError("unexpected frame")
)

// fileConn is the process's end of the connection. Nothing in it is concurrent.
type fileConn struct {
	fd        int
	buf       []byte // of recv
	out       []byte // of room
	inputOpen bool   // a write or copy in has not seen its End or Abort
}

// recv returns the next frame. The body is valid until the next call.
func (c *fileConn) recv() (files.Kind, []byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, files.HeaderSize, 4<<10)
	}
	if err := c.readFull(c.buf[:files.HeaderSize]); err != nil {
		return 0, nil, err
	}
	kind, n, err := files.ParseHeader(c.buf[:files.HeaderSize])
	if err != nil {
		return 0, nil, err
	}
	if n > cap(c.buf) {
		c.buf = make([]byte, files.MaxData)
	}
	body := c.buf[:n]
	return kind, body, c.readFull(body)
}

// input returns the next frame that belongs to a write or copy in: an entry or
// data; done means that all were sent.
func (c *fileConn) input() (kind files.Kind, body []byte, done bool, err error) {
	kind, body, err = c.recv()
	if err != nil {
		return 0, nil, false, err
	}
	switch kind {
	case files.KindEntry, files.KindData:
		return kind, body, false, nil
	case files.KindEnd:
		c.inputOpen = false
		return 0, nil, true, nil
	case files.KindAbort:
		c.inputOpen = false
		return 0, nil, false, failedFor(files.ReasonAborted, "")
	}
	return 0, nil, false, errFilesProtocol
}

// drain drops the rest of a request that has failed.
func (c *fileConn) drain() error {
	for c.inputOpen {
		_, _, _, err := c.input()
		if _, aborted := err.(*fileFailure); err != nil && !aborted {
			return err
		}
	}
	return nil
}

func (c *fileConn) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Read(c.fd, b)
		switch {
		case err == syscall.EINTR:
		case err != nil || n == 0:
			return errFilesLost
		default:
			b = b[n:]
		}
	}
	return nil
}

// send sends whole frames.
func (c *fileConn) send(b []byte) error {
	if writeFull(c.fd, b) != nil {
		return errFilesLost
	}
	return nil
}

// sendFrom sends up to limit bytes of the file fd as data, and returns how many
// there were. A limit of -1 is none.
func (c *fileConn) sendFrom(fd int, path string, limit int64) (sent int64, err error) {
	for limit < 0 || sent < limit {
		room := c.room()
		if limit >= 0 && limit-sent < int64(len(room)) {
			room = room[:limit-sent]
		}
		n, err := readRetry(fd, room)
		if err != nil {
			return sent, failedAt(path, err)
		}
		if n == 0 {
			return sent, nil
		}
		if err := c.sendRoom(n); err != nil {
			return sent, err
		}
		sent += int64(n)
	}
	return sent, nil
}

// room is where the data of the next frame goes.
func (c *fileConn) room() []byte {
	if c.out == nil {
		c.out = make([]byte, files.HeaderSize+files.MaxData)
	}
	return c.out[files.HeaderSize:]
}

// sendRoom sends the first n bytes of room, if there are any.
func (c *fileConn) sendRoom(n int) error {
	if n == 0 {
		return nil
	}
	files.PutHeader(c.out, files.KindData, n)
	return c.send(c.out[:files.HeaderSize+n])
}

// fillRoom reads from the file fd into room, until that is full or the file ends.
func (c *fileConn) fillRoom(fd int) (n int, err error) {
	for room := c.room(); n < len(room); {
		more, err := readRetry(fd, room[n:])
		if err != nil || more == 0 {
			return n, err
		}
		n += more
	}
	return n, nil
}

func readRetry(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

func writeFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
