package fromhost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/caisson-run/caisson/rootfs/image/filter"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// Serve collects software for the daemon, and passes it through the filter.
func Serve(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
	var asked imagework.HostRequest
	if err := json.Unmarshal(request, &asked); err != nil {
		return err
	}
	r := Request{Root: asked.Root, Packages: asked.Packages, Paths: asked.Paths, Limits: Limits{Bytes: asked.Limits.Bytes, Entries: asked.Limits.Entries}}
	if err := r.Validate(); err != nil {
		return err
	}
	found := newCollector(r)
	paths, err := found.collect(r)
	if err != nil {
		return coded(err)
	}
	hints := found.hints(paths)
	if err := c.Send(imagework.MessageBegun, imagework.Begun{Summary: found.summary(), Env: found.environment(paths)}); err != nil {
		return err
	}
	f := filter.NewFilter(asked.Limits)
	err = c.SendStream(func(w io.Writer) error {
		return filtered(f, found.write, w)
	})
	if err != nil {
		return err
	}
	return c.Send(imagework.MessageReport, imagework.Report{Report: f.Report(), Warnings: append(hints, found.left.warnings()...)})
}

// filtered passes the tar that write writes through f. The error of write comes first.
func filtered(f *filter.Filter, write func(io.Writer) error, w io.Writer) error {
	r, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		// Each write to the pipe waits for the filter.
		out := bufio.NewWriterSize(pw, 256<<10)
		err := write(out)
		if err == nil {
			err = out.Flush()
		}
		pw.CloseWithError(err)
		written <- err
	}()
	err := f.Layer(bufio.NewReaderSize(r, 256<<10), w)
	r.CloseWithError(err)
	if cause := <-written; cause != nil && !errors.Is(cause, io.ErrClosedPipe) && !errors.Is(cause, err) {
		return coded(cause)
	}
	return err
}

// output returns what the host's program prints, also where it fails.
func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	// A clean environment: no macros of a home directory, no translations.
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}, "/"
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		said := complaint.Bytes()
		err = fmt.Errorf("run %q: %w: %q", program, err, said[max(0, len(said)-400):])
	}
	return string(out), err
}
