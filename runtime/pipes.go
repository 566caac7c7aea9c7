package runtime

import (
	"errors"
	"os"

	"github.com/caisson-run/caisson/sbxerr"
)

// pipes connect the daemon with a command. The inside ends go to PID 1; what
// the command writes reaches the daemon with no process in between.
type pipes struct {
	inside                [3]*os.File // stdin, stdout, stderr
	stdin, stdout, stderr *os.File    // nil where the command has no such stream of its own
}

func newPipes(withStdin, withStderr bool) (_ *pipes, err error) {
	p := &pipes{}
	defer func() {
		if err != nil {
			err = errors.Join(sbxerr.Wrap(sbxerr.Internal, "runtime.pipes", err), p.closeInside(), p.closeOutside())
		}
	}()
	if withStdin {
		if p.inside[0], p.stdin, err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	if p.stdout, p.inside[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if !withStderr {
		return p, nil
	}
	if p.stderr, p.inside[2], err = os.Pipe(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pipes) closeInside() error  { return closeAll(p.inside[:]...) }
func (p *pipes) closeOutside() error { return closeAll(p.stdin, p.stdout, p.stderr) }

func closeAll(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
