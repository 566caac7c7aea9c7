package netns

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

func TestSumNetlink(t *testing.T) {
	const heading = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	got, err := sumNetlink(heading + "0000000000000000 0   1          00000000 1000     20       0     2        0        1\n0000000000000000 4   0 00000000 300 0 0 2 0 1\n")
	if got != 1320 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{heading + "0 0 1\n", heading + "0 0 1 0 x 0\n"} {
		if _, err := sumNetlink(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// Answers that nobody reads are counted, in their own namespace alone.
func TestNetlinkMemory(t *testing.T) {
	need.Root(t, "it makes network namespaces")
	inside := func(do func() error) {
		t.Helper()
		err := onThread(func() error { return errors.Join(unix.Unshare(unix.CLONE_NEWNET), do()) })
		if err != nil {
			t.Fatal(err)
		}
	}
	inside(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		ask := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
		ask[0], ask[4], ask[6], ask[7] = byte(len(ask)), unix.RTM_GETLINK, unix.NLM_F_REQUEST, unix.NLM_F_DUMP>>8
		if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		n, err := NetlinkMemory(unix.Gettid())
		if n < 512 {
			t.Errorf("with an answer that nobody reads: %d bytes", n)
		}
		inside(func() error {
			n, err := NetlinkMemory(unix.Gettid())
			if n != 0 {
				t.Errorf("in another namespace: %d bytes", n)
			}
			return err
		})
		return err
	})
}
