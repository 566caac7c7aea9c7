package api

import (
	"fmt"
	"io"
	"syscall"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// IO connects a foreground command with its caller. Nil fields are not
// connected.
type IO struct {
	// Stdin is read until its end, which is the end of the command's input. One that
	// cannot be read is an error of the call (SBX-804). An error with a method Leave has it
	// called, once what was read before is sent, and no more is read. A Read that is under way when
	// the command ends is not waited for.
	Stdin io.Reader
	// Stdout and Stderr get every byte of the output, in order, and the command waits
	// for them. If no caller was connected for a while, bytes may be left out. A
	// Skipper is told how many.
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal // delivered to the command's process group
	Resizes        <-chan Size           // of the command's terminal
	// Started is called once, when the command runs.
	Started func(*caissonv1.Started)
}

// Size is the size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// Message is s in the form of a request.
func (s Size) Message() *caissonv1.WinSize {
	return &caissonv1.WinSize{Rows: uint32(s.Rows), Cols: uint32(s.Cols)}
}

// Skipper is what a writer of a command's output may be too: it is told how
// many bytes are left out at a place.
type Skipper interface{ Skip(n int64) error }

// Placer is an optional interface of a writer of [Client.Logs]. Place gives the offset in the
// stream at which the next Write begins. With timestamps it also gives the time at which the
// first byte came; zero is an unknown time.
type Placer interface {
	Place(offset int64, came time.Time) error
}

// write passes output on to the caller's writer, if there is one.
func write(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	if _, err := w.Write(p); err != nil {
		return outputError(err)
	}
	return nil
}

// skip tells the caller's writer of n bytes that are left out.
func skip(w io.Writer, n int64) error {
	if s, ok := w.(Skipper); ok {
		if err := s.Skip(n); err != nil {
			return outputError(err)
		}
	}
	return nil
}

// place tells the caller's writer where o begins.
func place(w io.Writer, offset int64, o *caissonv1.Output) error {
	p, ok := w.(Placer)
	if !ok {
		return nil
	}
	var came time.Time
	if o.GetTime() != nil {
		came = o.GetTime().AsTime()
	}
	if err := p.Place(offset, came); err != nil {
		return outputError(err)
	}
	return nil
}

func outputError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "api.write", fmt.Errorf("write the command's output: %w", err))
}

// sink is one stream of a command on its way to the caller's writer.
type sink struct {
	w      io.Writer
	offset int64 // bytes of the stream that were had
}

// take passes one event on. With a time to begin at, it may begin past the last byte.
func (s *sink) take(o *caissonv1.Output) error {
	s.offset = max(s.offset, o.GetOffset())
	if o.GetSkipped() > 0 {
		s.offset += o.GetSkipped()
		return skip(s.w, o.GetSkipped())
	}
	if err := place(s.w, s.offset, o); err != nil {
		return err
	}
	s.offset += int64(len(o.GetData()))
	return write(s.w, o.GetData())
}
