package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
)

// process is one run of caisson-gateway.
type process struct {
	*link
	cmd   *exec.Cmd
	words *lastWords
}

// launch starts the program and returns when it is confined, as the kernel says
// as well. The calling thread must live as long as the process: the kernel ends
// that with it.
func (g *Gateway) launch() (*process, error) {
	const op = "egress.start"
	own, theirs, err := pair()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	p := &process{words: &lastWords{}}
	p.cmd = g.command(theirs, p.words)
	err = start(p.cmd)
	if err := errors.Join(err, theirs.Close()); err != nil {
		_ = own.Close()
		return nil, sbxerr.Wrap(sbxerr.Binary, op, err)
	}
	p.link = newLink(own, g.timing.patience, func() { _ = p.cmd.Process.Kill() }, g.event)
	go p.follow()
	if err := p.awaitConfined(g); err != nil {
		err = errors.Join(err, p.finish())
		return nil, sbxerr.Wrap(startCode(err), op, err)
	}
	return p, nil
}

// filterMemory is how the gateway says that the kernel could not compile its filter,
// because net.core.bpf_jit_limit is used up: ENOTSUPP, an errno without a name.
const filterMemory = "filter system calls: errno 524"

func startCode(err error) sbxerr.Code {
	if strings.Contains(err.Error(), filterMemory) {
		return sbxerr.SeccompMemory
	}
	return sbxerr.Gateway
}

// pair is a connection: the daemon's end, and the one that the gateway inherits.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	c, err := net.FileConn(own)
	if err := errors.Join(err, own.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c.(*net.UnixConn), theirs, nil
}

// command has nothing of the daemon's but the connection: no environment, no
// terminal, and namespaces of its own for all but the network, from which it
// dials.
func (g *Gateway) command(control *os.File, words *lastWords) *exec.Cmd {
	id := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	cmd := exec.Command(g.options.Program, "-uid", id(g.options.UID), "-gid", id(g.options.GID))
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{control}
	cmd.Stderr = words
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	return cmd
}

// start starts cmd with no descriptor but those that it names: what the daemon
// inherited from whoever started it may lack the mark.
func start(cmd *exec.Cmd) error {
	const first = 3
	if err := unix.CloseRange(first, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	return cmd.Start()
}

// follow reads until the process ends, or has to, and says so when it is over.
func (p *process) follow() {
	p.giveUp(p.read())
	_ = p.cmd.Wait() // how it ended, its state says
	close(p.gone)
}

func (p *process) awaitConfined(g *Gateway) error {
	limit := time.NewTimer(g.timing.start)
	defer limit.Stop()
	select {
	case <-p.confined:
		return checkConfined(p.cmd.Process.Pid, g.options.UID, g.options.GID)
	case <-p.gone:
		return errors.New("it ended before it was confined")
	case <-g.stop:
		return errClosed("egress.start")
	case <-limit.C:
		return fmt.Errorf("it was not confined within %v", g.timing.start)
	}
}

// finish ends the process for good and says how it ended.
func (p *process) finish() error {
	p.kill()
	<-p.gone
	return p.ending()
}

// ending says how the process, which is over, came to its end.
func (p *process) ending() error {
	err := fmt.Errorf("caisson-gateway: %s", p.cmd.ProcessState)
	if said := p.words.String(); said != "" {
		err = fmt.Errorf("%w; its last words: %q", err, said)
	}
	return errors.Join(err, p.why())
}

// configure tells the process whom to ask for names, and through whom to leave.
func (p *process) configure(g *Gateway) error {
	return p.ask(control.Request{Op: control.Configure, Servers: g.servers(), Proxy: control.ProxyOf(g.options.Upstream)})
}

// lastWords keeps the end of what a process writes.
type lastWords struct {
	mu   sync.Mutex
	said []byte
}

const maxWords = 4 << 10 // bytes

// Write never fails: the process must not wait or end because of it.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, p...)
	if cut := len(w.said) - maxWords; cut > 0 {
		w.said = append(w.said[:0], w.said[cut:]...)
	}
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.said)
}
