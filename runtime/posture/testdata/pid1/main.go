// Command pid1 stands in for caisson-init in the tests: it makes
// itself non-dumpable, adds its filter and connects to its socket as caisson-init does, tells that
// it runs, and waits to be killed.
package main

import (
	"net"
	"os"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/initproto/listener"
)

const prSetDumpable = 4 // prctl(2)

func main() {
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); errno != 0 {
		os.Exit(5)
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		os.Exit(6)
	}
	for fd := range 3 {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			os.Exit(7)
		}
	}
	if err := syscall.Close(null); err != nil {
		os.Exit(8)
	}
	if _, err := listener.Install(); err != nil {
		os.Exit(9)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "/run/caisson/init.sock", Net: "unixpacket"})
	if err != nil {
		os.Exit(3)
	}
	if _, err := conn.Write([]byte("up")); err != nil {
		os.Exit(4)
	}
	for i := range 4 { // threads, since each has credentials of its own
		go func() { time.Sleep(time.Hour + time.Duration(i)) }()
	}
	time.Sleep(time.Hour)
}
