package sockmem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/cgroups"
)

const (
	proofGroup = "probe-sockets" // no sandbox has this name
	// proofName is the child's name for itself. It is no argument: a program of tests would
	// take no notice of one, and run all its tests.
	proofName    = "caisson-socket-holder"
	proofTimeout = 20 * time.Second
	// Other sandboxes close sockets while they are looked at: a sum can be wrong once.
	proofLooks = 5
	proofPause = 10 * time.Millisecond
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == proofName {
		os.Exit(holdSockets())
	}
}

// prove has a child hold memory in a cgroup of its own, and fails unless a look counts
// exactly the bytes that the child's sockets tell. A kernel can take the programs and have
// them count nothing.
func (w *Watch) prove(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, proofTimeout, fmt.Errorf("no answer within %s", proofTimeout))
	defer cancel()
	dir := filepath.Join(w.group, proofGroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // a killed daemon left it
		return err
	}
	defer func() { err = errors.Join(err, cgroups.RemoveDir(context.WithoutCancel(ctx), dir)) }()
	id, err := ID(dir)
	if err != nil {
		return err
	}
	want, release, err := startHolder(ctx, dir)
	if err != nil {
		return fmt.Errorf("have a child hold sockets: %w", errors.Join(err, context.Cause(ctx)))
	}
	defer func() { err = errors.Join(err, release()) }()
	for range proofLooks {
		if err = w.count(id, want); err == nil {
			return nil
		}
		time.Sleep(proofPause)
	}
	return err
}

// count looks once, and fails unless the group with that id holds as many bytes as wanted.
func (w *Watch) count(id uint64, want int64) error {
	if _, err := w.look(false); err != nil {
		return err
	}
	if err := w.readSums(); err != nil {
		return err
	}
	if got := w.held[id].Uncharged; got != want {
		return fmt.Errorf("look at sockets that hold %d bytes: %d were counted", want, got)
	}
	return nil
}

// startHolder starts the child in the cgroup at dir, and returns what its sockets hold
// until release.
func startHolder(ctx context.Context, dir string) (bytes int64, release func() error, err error) {
	group, err := os.Open(dir)
	if err != nil {
		return 0, nil, err
	}
	defer group.Close()
	child := exec.CommandContext(ctx, "/proc/self/exe")
	child.Args, child.Env = []string{proofName}, []string{}
	child.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	in, err := child.StdinPipe() // closed with the daemon, which ends the child
	if err != nil {
		return 0, nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return 0, nil, errors.Join(err, in.Close())
	}
	if err := child.Start(); err != nil {
		return 0, nil, err
	}
	release = func() error { return errors.Join(in.Close(), child.Wait()) }
	if _, err := fmt.Fscanln(out, &bytes); err != nil {
		return 0, nil, errors.Join(fmt.Errorf("read how much they hold: %w", err), release())
	}
	return bytes, release, nil
}

// holdSockets is the child. It tells how much its sockets hold, and holds it until its
// input ends. No packet is sent.
func holdSockets() int {
	corked, err := holdSocket(func(fd int, to unix.Sockaddr) error {
		return unix.Sendto(fd, make([]byte, proofBytes), unix.MSG_MORE, to)
	})
	refused, refusedErr := holdSocket(queueError)
	if err := errors.Join(err, refusedErr); err != nil {
		return 1
	}
	if _, err := fmt.Println(corked + refused); err != nil {
		return 1
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// proofBytes fit into a datagram, and do not twice.
const proofBytes = 60_000

// queueError has the kernel queue an error for a datagram that is too long.
func queueError(fd int, to unix.Sockaddr) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		return err
	}
	if err := unix.Sendto(fd, make([]byte, proofBytes), unix.MSG_MORE, to); err != nil {
		return err
	}
	if err := unix.Sendto(fd, make([]byte, proofBytes), unix.MSG_MORE, to); !errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("send too long a datagram: %w", err)
	}
	return nil
}

// holdSocket makes a datagram socket that lasts as long as the process, and returns what
// it holds after use.
func holdSocket(use func(fd int, to unix.Sockaddr) error) (bytes int64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := use(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	var info [9]uint32 // linux/sock_diag.h: SK_MEMINFO_RMEM_ALLOC, and SK_MEMINFO_WMEM_ALLOC at 2
	size := uint32(unsafe.Sizeof(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return 0, errno
	}
	const itself = 1 // a socket's send memory counts the socket as a byte, of which it does not tell
	return int64(info[0]) + int64(info[2]) + itself, nil
}
