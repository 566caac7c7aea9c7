package imageproc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Name is that of the program, and the first argument by which it knows what it is for.
const Name = "caisson-images"

// ID is the user and the group of the program. It is right below the gateway's and owns nothing,
// while hosts have files and processes of nobody (65534).
const ID = 1879048190

// Program is the program where it is installed.
type Program struct{ Path string }

// Job is work for one process.
type Job struct {
	Kind    string      // of the handler
	What    string      // the work, for messages: "plan the Dockerfile"
	Op      string      // for errors: "images.build"
	Request any         // as JSON
	Files   []*os.File  // that the process gets; the caller closes them
	Host    bool        // it reads files of the host, and runs its programs; else it can open nothing
	Disk    int64       // how long a file may become that it writes, in bytes; 0: it writes none
	Give    Giver       // of what it asks for by an Asker on one more file; nil: nothing
	Code    sbxerr.Code // of an end that nobody asked for; empty: ImageProcess
}

// Process is a process at work.
type Process struct {
	*Conn
	job  Job
	ctx  context.Context //nolint:containedctx // of the caller: the process is its work
	conn *os.File
	cmd  *exec.Cmd
	stop context.CancelFunc
	gone chan struct{} // closed when the process has ended
	said *lastWords
	once sync.Once

	asks   *net.UnixConn // for what the process asks for; nil: nothing is given
	giving sync.WaitGroup
}

// Start starts a process for a job. It ends with ctx. The caller closes it.
func (p Program) Start(ctx context.Context, j Job) (_ *Process, err error) {
	if j.Code == "" {
		j.Code = sbxerr.ImageProcess
	}
	if err := ended(ctx, j); err != nil {
		return nil, err
	}
	request, err := json.Marshal(j.Request)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, j.Op, err)
	}
	program, err := os.Open(p.Path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, j.Op, err)
	}
	defer program.Close() // the process has it
	own, theirs, err := pair(unix.SOCK_STREAM)
	if err != nil {
		return nil, sbxerr.Wrap(j.Code, j.Op, err)
	}
	defer theirs.Close() // the process has it
	r := &Process{Conn: NewConn(own), job: j, ctx: ctx, conn: own, gone: make(chan struct{}), said: &lastWords{}}
	working, stop := context.WithCancel(ctx)
	r.stop = stop
	files := append([]*os.File{theirs, program}, j.Files...)
	if j.Give != nil {
		asker, err := r.askedBy()
		if err != nil {
			stop()
			return nil, errors.Join(sbxerr.Wrap(j.Code, j.Op, err), own.Close())
		}
		defer asker.Close()                                       // the process has it
		context.AfterFunc(working, func() { _ = r.asks.Close() }) // nothing is asked any more
		files = append(files, asker)
	}
	r.cmd = command(working, files)
	r.cmd.Stderr = r.said
	if err := r.start(); err != nil {
		r.stop()
		return nil, errors.Join(sbxerr.Wrap(j.Code, j.Op, fmt.Errorf("start %s to %s: %w", Name, j.What, err)), own.Close())
	}
	context.AfterFunc(working, func() { _ = own.SetDeadline(time.Unix(1, 0)) }) // it may be closed already
	if j.Give != nil {
		r.giving.Go(func() { r.give(working) })
	}
	if err := r.Send("start", start{Kind: j.Kind, Disk: j.Disk, Files: len(files) - 2, Host: j.Host, Request: request}); err != nil {
		defer r.Close()
		return nil, r.Failed(err)
	}
	return r, nil
}

// command has nothing of the daemon's but what it is given: no environment, no terminal, and
// namespaces of its own.
func command(ctx context.Context, files []*os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/fd/4") // the path may be closed to its user
	cmd.Args, cmd.Env, cmd.Dir = []string{Name}, []string{}, "/"
	cmd.ExtraFiles = files
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: ID, Gid: ID},
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
	}
	return cmd
}

// start starts the process in a thread that stays: the kernel ends a process with the thread
// that made it.
func (p *Process) start() error {
	started := make(chan error)
	go func() {
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		// What the daemon inherited from whoever started it may lack the mark.
		err := unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
		if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended, its state says
		}
		close(p.gone)
	}()
	return <-started
}

// pair is a connection: the daemon's end, and the one that the process inherits.
func pair(kind int) (own, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "images")
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that it has deadlines
		return nil, nil, errors.Join(err, unix.Close(fds[0]), theirs.Close())
	}
	return os.NewFile(uintptr(fds[0]), "images"), theirs, nil
}

// PID is that of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Waiting is ctx for a wait for somebody else: it ends with the process, too. The error of the wait
// goes through Failed, which says what ended it. The caller calls stop.
func (p *Process) Waiting(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		defer stop()
		select {
		case <-p.gone:
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// Next reads the next message of the process, or why there is none: its own failure, the end of
// the caller's context, or what ended it.
func (p *Process) Next(most int) (kind string, body json.RawMessage, err error) {
	kind, body, err = p.Receive(max(most, maxFailure))
	if err != nil {
		return "", nil, p.Failed(err)
	}
	if kind != "failed" {
		if len(body) > most {
			return "", nil, p.Failed(fmt.Errorf("%w: %d bytes, at most %d", errBroken, len(body), most))
		}
		return kind, body, nil
	}
	var f Failure
	if err := json.Unmarshal(body, &f); err != nil {
		return "", nil, p.Failed(fmt.Errorf("%w: %w", errBroken, err))
	}
	err = f.Err()
	if errors.Is(err, errBroken) {
		return "", nil, p.Failed(err)
	}
	p.Close()
	return "", nil, cmp.Or(ended(p.ctx, p.job), err)
}

// Expect reads the next message, which must be of a kind, into v.
func (p *Process) Expect(kind string, most int, v any) error {
	got, body, err := p.Next(most)
	if err != nil {
		return err
	}
	if got != kind {
		return p.Failed(fmt.Errorf("%w: %.40q where %q is due", errBroken, got, kind))
	}
	return p.Decode(body, v)
}

// Decode reads a message into v; nil has no content.
func (p *Process) Decode(body json.RawMessage, v any) error {
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return p.Failed(fmt.Errorf("%w: %w", errBroken, err))
	}
	return nil
}

// Failed ends the process and says why the work failed: err is what was met.
func (p *Process) Failed(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errStopped) {
		kind, _, err := p.Next(MaxMessage)
		if err == nil {
			err = p.Broken(fmt.Errorf("a message %.40q in a stream", kind))
		}
		return err
	}
	lost := isLost(err)
	if lost { // it ends, or has ended: its own words come first
		select {
		case <-p.gone:
		case <-time.After(time.Second):
		}
	}
	p.Close()
	if cause := ended(p.ctx, p.job); cause != nil {
		return cause
	}
	if errors.Is(err, errBroken) {
		return sbxerr.New(p.job.Code, p.job.Op, "%s, which was to %s, does not keep to what was agreed: %w", Name, p.job.What, err)
	}
	if !lost {
		return err
	}
	return p.ending()
}

// CopyStream copies the stream that the process sends to w. An error of w is returned as it is.
func (p *Process) CopyStream(w io.Writer) error {
	in := &reading{r: p.Stream()}
	_, err := io.Copy(w, in)
	if in.err != nil {
		return p.Failed(in.err)
	}
	return err
}

// reading keeps the error of its reader.
type reading struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// Pass sends what write writes, as a stream, and copies the stream that comes back to w. Of two
// errors that of write comes first, unless the process was the reason.
func (p *Process) Pass(write func(io.Writer) error, w io.Writer) error {
	sent := make(chan error, 1)
	go func() {
		var own error
		_ = p.SendStream(func(to io.Writer) error { // where the process has gone, what comes back says why
			out := &sending{w: to}
			err := write(out)
			if out.err == nil {
				own = err
			}
			return err
		})
		if own != nil {
			p.Close() // it waits for more
		}
		sent <- own
	}()
	err := p.CopyStream(w)
	if err != nil {
		p.Close() // or the writer might wait for it
	}
	if cause := <-sent; cause != nil {
		return cause
	}
	return err
}

// sending keeps the error of its writer.
type sending struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (s *sending) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Broken ends the process, which does not keep to what was agreed.
func (p *Process) Broken(err error) error { return p.Failed(fmt.Errorf("%w: %w", errBroken, err)) }

// isLost reports whether err is of a connection whose other end has gone.
func isLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrClosed)
}

// ending says what ended the process.
func (p *Process) ending() error {
	words := p.said.String()
	state := p.cmd.ProcessState
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case isOutOfMemory(words), state.Exited() && wasFull(state):
		return sbxerr.WithRemedy(p.job.Code, p.job.Op, fmt.Errorf("%s, which was to %s, ran out of its memory of %d MiB", Name, p.job.What, Memory>>20),
			"give it less: an image of fewer files, or a smaller document")
	case status.Signaled():
		return sbxerr.New(p.job.Code, p.job.Op, "%s, which was to %s, was killed: %s", Name, p.job.What, status.Signal())
	}
	return sbxerr.New(p.job.Code, p.job.Op, "%s, which was to %s, ended: %s: %.400q", Name, p.job.What, state, words)
}

// wasFull reports whether a process had most of its memory. Go's runtime does not say so wherever
// it gets no more: its collector goes on to a fault.
func wasFull(s *os.ProcessState) bool {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	return ok && usage.Maxrss<<10 > Memory/3*2 // KiB (getrusage(2))
}

// isOutOfMemory reports whether Go ended because the kernel gave no more memory.
func isOutOfMemory(words string) bool {
	for _, of := range []string{"out of memory", "cannot allocate memory", "cannot map pages", "failed to create new OS thread"} {
		if strings.Contains(words, of) {
			return true
		}
	}
	return false
}

// ended is why the context of a job ended.
func ended(ctx context.Context, j Job) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sbxerr.Wrap(sbxerr.Deadline, j.Op, context.Cause(ctx))
	}
	return sbxerr.Wrap(sbxerr.Canceled, j.Op, context.Cause(ctx))
}

// Close ends the process, if it still runs, and waits for its end.
func (p *Process) Close() {
	p.once.Do(func() {
		if p.cmd.Process != nil {
			_ = p.cmd.Process.Kill() // it may be over
		}
		<-p.gone
		_ = p.conn.Close() // nothing is in it that anybody reads
		p.stop()
		p.giving.Wait()
	})
}

// lastWords keeps the beginning of what a process writes: it says why Go ended.
type lastWords struct {
	mu   sync.Mutex
	said []byte
}

const maxWords = 4 << 10 // bytes

// Write never fails: the process must not wait or end because of it.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, p[:min(len(p), maxWords-len(w.said))]...)
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.said)
}
