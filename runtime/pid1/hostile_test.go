package pid1

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Each case says something that PID 1 may not say while one command runs, as
// number 1 with pid 2, and none is being started or signalled.
func TestViolationsEndTheConnection(t *testing.T) {
	const id = 1
	packets := func(list ...initproto.Message) (raw []string) {
		for _, m := range list {
			raw = append(raw, string(initproto.Encode(m)))
		}
		return raw
	}
	for name, tc := range map[string][]string{
		"unknown kind":                {"\xfe\x01"},
		"truncated message":           {"\x44\x01"},
		"oversized packet":            {strings.Repeat("\x44", initproto.MaxPacket+1)},
		"huge packet":                 {strings.Repeat("\x44", 64<<10)},
		"second hello":                packets(initproto.Hello{Version: initproto.Version, PID: 1}),
		"message for PID 1":           packets(initproto.Signal{Exec: id, Signal: 9}),
		"held unasked":                packets(initproto.Held{Exec: 2, PID: 3}),
		"placed unasked":              packets(initproto.Placed{Exec: 2, PID: 3}),
		"placed while it runs":        packets(initproto.Placed{Exec: id, PID: 2}),
		"second started":              packets(initproto.Started{Exec: id, PID: 2}),
		"second started, other pid":   packets(initproto.Started{Exec: id, PID: 3}),
		"failed after started":        packets(initproto.Failed{Exec: id, Stage: initproto.StageExec, Errno: 2}),
		"started unasked":             packets(initproto.Started{Exec: 2, PID: 3}),
		"failed unasked":              packets(initproto.Failed{Exec: 2, Stage: initproto.StageExec, Errno: 2}),
		"exit of an unknown command":  packets(initproto.Exited{Exec: 77}),
		"second exit":                 packets(initproto.Exited{Exec: id}, initproto.Exited{Exec: id}),
		"signaled unasked":            packets(initproto.Signaled{Exec: id}),
		"signaled of unknown command": packets(initproto.Signaled{Exec: 77}),
		"exit code and signal":        packets(initproto.Exited{Exec: id, Code: 1, Signal: 9}),
		"negative CPU time":           packets(initproto.Exited{Exec: id, UserMicros: -5}),
		"absurd memory":               packets(initproto.Exited{Exec: id, MaxRSSKiB: 1 << 62}),
	} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t)
			e, _ := start(t, c, f, 2)
			for _, packet := range tc {
				if err := f.raw([]byte(packet)); err != nil {
					t.Fatal(err)
				}
			}
			wantEnd(t, c, ErrProtocol)
			if _, err := e.Wait(testContext(t)); name != "second exit" {
				wantInit(t, err, ErrProtocol)
			} else if err != nil {
				t.Errorf("the first exit is lost: %v", err)
			}
			if _, _, err := f.conn.Recv(); err != initproto.ErrClosed {
				t.Errorf("PID 1 sees %v", err)
			}
		})
	}
}

func TestPIDLies(t *testing.T) {
	for name, pid := range map[string]int{"its own": 1, "none": 0, "negative": -2, "beyond all": initproto.MaxPID + 1} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t)
			done := make(chan error, 1)
			go func() { _, err := c.Start(testContext(t), command("true")); done <- err }()
			m, _ := f.recv().(initproto.Start)
			f.send(initproto.Started{Exec: m.Exec, PID: pid})
			wantInit(t, <-done, ErrProtocol)
			wantEnd(t, c, ErrProtocol)
		})
	}
	t.Run("another's", func(t *testing.T) {
		c, f := connect(t)
		start(t, c, f, 7)
		done := make(chan error, 1)
		go func() { _, err := c.Start(testContext(t), command("true")); done <- err }()
		m, _ := f.recv().(initproto.Start)
		f.send(initproto.Started{Exec: m.Exec, PID: 7})
		wantInit(t, <-done, ErrProtocol)
	})
}

func TestExitBeforeStarted(t *testing.T) {
	c, f := connect(t)
	done := make(chan error, 1)
	go func() { _, err := c.Start(testContext(t), command("true")); done <- err }()
	m, _ := f.recv().(initproto.Start)
	f.send(initproto.Exited{Exec: m.Exec})
	wantInit(t, <-done, ErrProtocol)
}

// No state lets PID 1 send two messages unasked, so a flood ends with its
// first packet and costs the daemon nothing.
func TestFlood(t *testing.T) {
	c, f := connect(t)
	_, id := start(t, c, f, 2)
	sent := 0
	for ; sent < 100_000; sent++ {
		if err := f.raw(initproto.Encode(initproto.Exited{Exec: id})); err != nil {
			break
		}
	}
	if sent == 100_000 {
		t.Error("the flood was let through")
	}
	wantEnd(t, c, ErrProtocol)
}

func TestNoAnswerToStart(t *testing.T) {
	c, f := connectShort(t, 50*time.Millisecond)
	_, err := c.Start(testContext(t), command("true"))
	wantInit(t, err, ErrProtocol)
	wantEnd(t, c, ErrProtocol)
	f.recv()
}

func TestNoAnswerToSignal(t *testing.T) {
	c, f := connectShort(t, 50*time.Millisecond)
	e, _ := start(t, c, f, 2)
	wantInit(t, e.Signal(testContext(t), syscall.SIGTERM), ErrProtocol)
	wantEnd(t, c, ErrProtocol)
}

// A caller that gave up on a start does not save PID 1 from answering it.
func TestNoAnswerToAbandonedStart(t *testing.T) {
	c, f := connectShort(t, 50*time.Millisecond)
	ctx := testContext(t)
	e, err := c.add(command("true"))
	if err != nil {
		t.Fatal(err)
	}
	e.abandon(ctx)
	wantEnd(t, c, ErrProtocol)
	f.close()
}

func TestPID1ThatDoesNotRead(t *testing.T) {
	c, _ := connectShort(t, 50*time.Millisecond)
	for range 10_000 { // the queue holds a few hundred
		if err := c.send(initproto.Signal{Exec: 1, Signal: 1}, parcel{}); err != nil {
			wantInit(t, err, ErrProtocol)
			wantEnd(t, c, ErrProtocol)
			return
		}
	}
	t.Error("PID 1 took it all")
}

// A PID 1 that shuts down its receiving half only must not hang the daemon.
func TestHalfClosed(t *testing.T) {
	c, f := connectShort(t, 50*time.Millisecond)
	if err := unix.Shutdown(f.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	_, err := c.Start(testContext(t), command("true"))
	wantInit(t, err, ErrLost)
	wantEnd(t, c, ErrLost)
}

// Where the kernel has SO_PASSRIGHTS the sender is refused, elsewhere the
// receiver never gets the descriptors. Both kinds of packets, with and without
// bytes, must end the connection or fail to be sent.
func TestDescriptorsFromPID1(t *testing.T) {
	for name, packet := range map[string]string{
		"with a message":    string(initproto.Encode(initproto.Exited{Exec: 1})),
		"with nothing else": "",
	} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t)
			start(t, c, f, 2)
			before := openFDs()
			err := f.raw([]byte(packet), fileFD(t))
			switch refused := kernelRefusesRights(t); {
			case refused && !errors.Is(err, unix.EPERM):
				t.Errorf("send: %v, where the kernel should refuse", err)
			case !refused && err != nil:
				t.Errorf("send: %v", err)
			case !refused:
				wantEnd(t, c, ErrProtocol)
			}
			settled(t, "descriptors", before+1, openFDs)
		})
		t.Run(name+", received", func(t *testing.T) {
			s, f := socketPair(t)
			fd := fileFD(t)
			before := openFDs()
			if err := f.raw([]byte(packet), fd, fd); err != nil {
				t.Fatal(err)
			}
			if m, err := s.recv(); m != nil || !errors.Is(err, ErrProtocol) {
				t.Errorf("recv = %v, %v", m, err)
			}
			if after := openFDs(); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

func kernelRefusesRights(t *testing.T) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) == nil
}

func fileFD(t *testing.T) int {
	t.Helper()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// Nor does a caller that gave up on a signal.
func TestNoAnswerToAbandonedSignal(t *testing.T) {
	t.Parallel()
	c, f := connectShort(t, time.Second)
	e, _ := start(t, c, f, 2)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- e.Signal(ctx, syscall.SIGTERM) }()
	f.recv() // it was asked for
	cancel()
	wantCode(t, <-done, sbxerr.Canceled)
	wantEnd(t, c, ErrProtocol)
}

// A frozen PID 1 cannot answer, and has its whole time again when it is thawed.
func TestFrozenIsExcused(t *testing.T) {
	t.Parallel()
	const answer = 100 * time.Millisecond
	c, f := connectShort(t, answer)
	e, _ := start(t, c, f, 2)
	c.SetFrozen(true)
	done := make(chan error, 1)
	go func() { done <- e.Signal(testContext(t), syscall.SIGTERM) }()
	time.Sleep(5 * answer) // for longer than it has to answer
	c.SetFrozen(false)
	time.Sleep(answer / 2) // within its time again
	if err := c.Err(); err != nil {
		t.Fatalf("a frozen PID 1 was given up: %v", err)
	}
	m, _ := f.recv().(initproto.Signal)
	f.send(initproto.Signaled{Exec: m.Exec})
	if err := <-done; err != nil {
		t.Errorf("a late answer: %v", err)
	}
	wantInit(t, e.Signal(testContext(t), syscall.SIGTERM), ErrProtocol) // thawed, it is held to its time
}
