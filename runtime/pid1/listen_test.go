package pid1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

func TestListenMakesAPrivateSocket(t *testing.T) {
	dir := filepath.Join(tempDir(t), strings.Repeat("long", 40)) // above what an address holds
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1879049192, 1879049193
	}
	l, err := Listen(dir, uid, gid)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	path := filepath.Join(dir, initproto.SocketName)
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFSOCK|0o600 || int(st.Uid) != uid || int(st.Gid) != gid {
		t.Errorf("the socket has mode %o and owner %d:%d", st.Mode, st.Uid, st.Gid)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestListenRefusals(t *testing.T) {
	dir := tempDir(t)
	l := listenIn(t, dir)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	fds := openFDs()
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, initproto.SocketName), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"taken": taken, "absent": filepath.Join(dir, "x"), "link": link} {
		_, err := Listen(path, os.Getuid(), os.Getgid())
		wantCode(t, err, sbxerr.StateDir)
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v does not name the directory", name, err)
		}
	}
	if got := openFDs(); got != fds {
		t.Errorf("%d descriptors open, %d before", got, fds)
	}
	if _, err := os.Lstat(filepath.Join(dir, initproto.SocketName)); err != nil {
		t.Errorf("a refused Listen removed another's socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestAcceptTakesOneConnection(t *testing.T) {
	dir := tempDir(t)
	l := listenIn(t, dir)
	f := dialFake(t, dir)
	f.send(initproto.Hello{Version: initproto.Version, PID: os.Getpid()})
	c, _, err := l.Accept(testContext(t), os.Getpid(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := initproto.Dial(filepath.Join(dir, initproto.SocketName)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a second connection: %v", err)
	}
}

func TestAcceptRefusesOthers(t *testing.T) {
	for name, change := range map[string]func(l *Listener) (pid int){
		"another pid":  func(*Listener) int { return os.Getppid() },
		"another user": func(l *Listener) int { l.uid++; return os.Getpid() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			l := listenIn(t, dir)
			pid := change(l)
			f := dialFake(t, dir)
			f.send(initproto.Hello{Version: initproto.Version, PID: 1})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, _, err := l.Accept(ctx, pid, Options{}); done <- err }()
			if _, _, err := f.conn.Recv(); err != initproto.ErrClosed {
				t.Errorf("the stranger sees %v", err)
			}
			cancel()
			wantCode(t, <-done, sbxerr.Canceled)
		})
	}
}

func TestAcceptIsBoundedByItsContext(t *testing.T) {
	for name, tc := range map[string]struct{ connects bool }{"no connection": {false}, "no hello": {true}} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			l := listenIn(t, dir)
			if tc.connects {
				dialFake(t, dir)
			}
			fds := openFDs()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, _, err := l.Accept(ctx, os.Getpid(), Options{})
			wantInit(t, err, context.DeadlineExceeded)
			settled(t, "descriptors", fds, openFDs)
		})
	}
}

func TestAcceptRefusesWrongHellos(t *testing.T) {
	for name, tc := range map[string]struct {
		m        initproto.Message
		text     string
		protocol bool
	}{
		"newer version": {initproto.Hello{Version: initproto.Version + 1, PID: 1}, fmt.Sprintf("speaks version %d", initproto.Version+1), false},
		"another pid":   {initproto.Hello{Version: initproto.Version, PID: 2}, "hello from pid 2", true},
		"no hello":      {initproto.Started{Exec: 1, PID: 2}, "before hello", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			l := listenIn(t, dir)
			f := dialFake(t, dir)
			f.send(tc.m)
			_, _, err := l.Accept(testContext(t), os.Getpid(), Options{})
			wantCode(t, err, sbxerr.Init)
			if err == nil || !strings.Contains(err.Error(), tc.text) || errors.Is(err, ErrProtocol) != tc.protocol {
				t.Errorf("Accept: %v", err)
			}
		})
	}
}
