package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that the tests run, with its log in a file.
type process struct {
	line  []string
	env   []string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.line[0], p.line[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), p.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	p.ended = make(chan struct{})
	started := make(chan error, 1)
	go func() { // the death signal comes with the end of the thread
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the log says how it ended
			close(p.ended)
		}
	}()
	return <-started
}

func (p *process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(s); err != nil && p.runs() {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(90 * time.Second):
		return fmt.Errorf("%s does not end by %s", p.line[0], s)
	}
}

func (p *process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// rss is the resident memory in bytes, without pages of files.
func (p *process) rss() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)) // 0 fails the figure
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// cpu is the time of processors that the process has used.
func (p *process) cpu() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// tail is the end of the log.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return fmt.Sprintf("--- %s\n%s", filepath.Base(p.log), text[max(0, len(text)-4000):])
}
