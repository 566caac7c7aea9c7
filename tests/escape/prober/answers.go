package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The size of the attack by unread netlink answers. Each thread stops at share, so that
// the control takes no more of the host than all of them together.
const (
	answerProcesses = 4
	answerThreads   = 16
	answerShare     = 6 << 20 // bytes; then the thread asks for no further socket
)

// holdAnswers lets several processes ask by netlink and read no answer. It returns how
// many bytes the kernel keeps for them, and the last error of a thread that got no socket.
func holdAnswers(string) (int, error) {
	var children []*exec.Cmd
	defer func() {
		for _, c := range children {
			_ = c.Process.Kill()
			_ = c.Wait() // killed
		}
	}()
	var stopped error
	var outputs []io.Reader
	for range answerProcesses {
		c := exec.Command("/proc/self/exe", "bomb", "asker")
		out, err := c.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if _, err := c.StdinPipe(); err != nil { // it ends with this process
			return 0, err
		}
		if err := c.Start(); err != nil {
			return 0, err
		}
		children, outputs = append(children, c), append(outputs, out)
	}
	for _, out := range outputs {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line = strings.TrimSpace(line); line != "ok" {
			stopped = errors.New(line)
		}
	}
	return heldAnswers(), stopped
}

// heldAnswers adds up what the netlink sockets of this network namespace hold unread.
func heldAnswers() int {
	b, err := os.ReadFile("/proc/net/netlink")
	if err != nil {
		return -1
	}
	total := 0
	for line := range strings.Lines(string(b)) {
		var sk, port, groups string
		var protocol, held int
		if n, _ := fmt.Sscan(line, &sk, &protocol, &port, &groups, &held); n == 5 {
			total += held
		}
	}
	return total
}

// askInVain is one of the processes. It says what stopped its threads and holds on to
// what they have.
func askInVain(string) (int, error) {
	var all sync.WaitGroup
	results := make(chan error, answerThreads)
	for range answerThreads {
		all.Go(func() {
			runtime.LockOSThread() // so that all of them ask at once
			results <- fillAnswers()
		})
	}
	all.Wait()
	close(results)
	said := "ok"
	for err := range results {
		if err != nil {
			said = outcome(err)
		}
	}
	fmt.Println(said)
	_, err := io.Copy(io.Discard, os.Stdin)
	return 0, err
}

// fillAnswers fills sockets to the brim until the share is used up.
func fillAnswers() error {
	for total := 0; total < answerShare; {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<30); err != nil {
			return err
		}
		total += askUntilFull(fd)
	}
	return nil
}

// askUntilFull asks until nothing more is kept, and returns how many bytes are.
func askUntilFull(fd int) int {
	ask := manyQuestions()
	held := -1
	for idle := 0; idle < 8; idle++ {
		_ = unix.Sendto(fd, ask, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) // a full socket is an error
		if now := unread(fd); now > held {
			held, idle = now, 0
		}
	}
	return held
}

// manyQuestions is a message for each of some kinds of list, and many for one link.
func manyQuestions() []byte {
	var b []byte
	ask := func(kind, flags uint16, body int) {
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+body))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
		b = append(b, make([]byte, 8+body)...)
	}
	for range 64 {
		ask(unix.RTM_GETLINK, 0, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(b[len(b)-unix.SizeofIfInfomsg+4:], 1) // lo
	}
	for _, kind := range []uint16{unix.RTM_GETLINK, unix.RTM_GETADDR, unix.RTM_GETROUTE, unix.RTM_GETRULE} {
		ask(kind, unix.NLM_F_DUMP, unix.SizeofIfInfomsg)
	}
	return b
}

// unread returns the first word of SO_MEMINFO: what the receive queue takes.
func unread(fd int) int {
	var info [16]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return -1
	}
	return int(info[0])
}
