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
	stdin, stdout, stderr *os.File    // stdin is nil where the command gets none
}

func newPipes(withStdin bool) (_ *pipes, err error) {
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
	} else if p.inside[0], err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	if p.stdout, p.inside[1], err = os.Pipe(); err != nil {
		return nil, err
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
