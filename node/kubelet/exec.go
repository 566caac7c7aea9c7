package kubelet

import (
	"context"
	"fmt"
	"io"
	"time"

	vk "github.com/virtual-kubelet/virtual-kubelet/node/api"
	utilexec "k8s.io/utils/exec"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// sizeWait is how long a terminal's first size is waited for: a program should begin with it.
const sizeWait = 100 * time.Millisecond

func (s *Server) exec(ctx context.Context, namespace, pod, container string, args []string, a vk.AttachIO) error {
	sandbox, err := s.Pods.Find(ctx, namespace, pod, container, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	spec := &caissonv1.ExecSpec{Args: args}
	rio := connect(ctx, a)
	if a.TTY() {
		size := api.Size{Rows: 24, Cols: 80}
		select {
		case size = <-rio.Resizes:
		case <-time.After(sizeWait):
		}
		spec.Tty, spec.Env = size.Message(), map[string]string{"TERM": "xterm"}
	}
	return ended(s.Caisson.Exec(ctx, sandbox, spec, rio))
}

// attach replays the output from its first byte: nothing is lost between start and attach.
func (s *Server) attach(ctx context.Context, namespace, pod, container string, a vk.AttachIO) error {
	sandbox, err := s.Pods.Find(ctx, namespace, pod, container, false)
	if err != nil {
		return err
	}
	execs, err := s.Caisson.Execs(ctx, sandbox)
	if err != nil {
		return err
	}
	if len(execs) == 0 {
		return fmt.Errorf("the sandbox %s has no command", sandbox)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = s.Caisson.Attach(ctx, sandbox, execs[0].Id, api.AttachOptions{}, connect(ctx, a))
	return err // how the command ended is the pod's status
}

// ended is the result of a command in the form that the streams know.
func ended(result *caissonv1.Result, err error) error {
	if err != nil {
		return err
	}
	if code := int(result.GetExitCode()); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

func connect(ctx context.Context, a vk.AttachIO) api.IO {
	var rio api.IO
	if in := a.Stdin(); in != nil {
		rio.Stdin = in
	}
	if out := a.Stdout(); out != nil {
		rio.Stdout = out
	}
	if errs := a.Stderr(); errs != nil {
		rio.Stderr = errs
	}
	if a.TTY() {
		rio.Resizes = sizes(ctx, a.Resize())
	}
	return rio
}

func sizes(ctx context.Context, from <-chan vk.TermSize) <-chan api.Size {
	to := make(chan api.Size)
	go func() {
		for {
			select {
			case size := <-from:
				if size.Width == 0 || size.Height == 0 {
					continue
				}
				select {
				case to <- api.Size{Rows: size.Height, Cols: size.Width}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

func (s *Server) portForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	sandbox, err := s.Pods.Find(ctx, namespace, pod, "", false)
	if err != nil {
		return err
	}
	conn, err := s.Caisson.Forward(ctx, sandbox, uint16(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.CloseWrite() // the other direction tells what broke
	}()
	_, err = io.Copy(stream, conn)
	return err
}
