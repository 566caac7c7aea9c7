package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// systemd is how the daemon tells the service manager its state (sd_notify(3)). The zero value
// tells nothing: the daemon is no unit of systemd.
type systemd struct {
	socket   string        // takes the messages
	watchdog time.Duration // the longest time between signs of life; 0 wants none
}

// takeSystemd takes the settings out of the environment. Programs that the daemon starts must
// not inherit them: containerd and runc would speak for the daemon.
func takeSystemd() systemd {
	s := systemd{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for an empty name only
	}
	return s
}

// The states of a service, for tell.
const (
	stateReady    = "READY=1"
	stateStopping = "STOPPING=1"
	stateAlive    = "WATCHDOG=1"
)

// tellTimeout bounds the time that a message waits for room in the socket.
const tellTimeout = 2 * time.Second

// tell sends one state.
func (s systemd) tell(state string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(tellTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// watch gives a sign of life each time that alive returns, until ctx ends. One that does not
// return makes systemd start the daemon anew.
func (s systemd) watch(ctx context.Context, alive func()) error {
	if s.socket == "" || s.watchdog == 0 {
		return nil
	}
	tick := time.NewTicker(s.watchdog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			alive()
			if err := s.tell(stateAlive); err != nil {
				return err
			}
		}
	}
}
