package escape

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// surroundings are things of the host that nothing inside a sandbox may reach.
type surroundings struct {
	pid    int
	port   int
	dir    string // holds the socket and the set-user-id program
	name   string // of abstract socket and POSIX objects
	key    int
	canary string
}

// surround makes them, and removes them at the end of t.
func surround(t *testing.T) *surroundings {
	t.Helper()
	word := randomWord()
	s := &surroundings{name: "escape-" + word, canary: "canary-" + word}
	dir, err := os.MkdirTemp("/var/tmp", "escape-")
	must(t, err)
	s.dir = dir
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	s.listen(t)
	s.hold(t)
	s.objects(t)
	s.setID(t)
	return s
}

func randomWord() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *surroundings) socket() string  { return filepath.Join(s.dir, "host.sock") }
func (s *surroundings) program() string { return filepath.Join(s.dir, "set-id") }

// listen answers on the loopback, on an abstract socket, and on one that has a
// path.
func (s *surroundings) listen(t *testing.T) {
	t.Helper()
	for _, at := range [][2]string{{"tcp4", "127.0.0.1:0"}, {"unix", "@" + s.name}, {"unix", s.socket()}} {
		l, err := net.Listen(at[0], at[1])
		must(t, err)
		t.Cleanup(func() { must(t, l.Close()) })
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			s.port = a.Port
		}
		go func() { // nobody has to be answered: to be connected is enough
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
}

// hold runs a process that a sandbox may neither see nor signal.
func (s *surroundings) hold(t *testing.T) {
	t.Helper()
	cmd := exec.Command(prober(t), "hold", s.canary)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		must(t, in.Close())
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process of the host was disturbed: %v", err)
		}
	})
}

// objects makes System V and POSIX objects.
func (s *surroundings) objects(t *testing.T) {
	t.Helper()
	s.key = os.Getpid() | 1<<30
	make3 := []struct{ create, control, remove, a, b uintptr }{
		{unix.SYS_SHMGET, unix.SYS_SHMCTL, 1, 4096, unix.IPC_CREAT | 0o666},
		{unix.SYS_SEMGET, unix.SYS_SEMCTL, 2, 1, unix.IPC_CREAT | 0o666},
		{unix.SYS_MSGGET, unix.SYS_MSGCTL, 1, unix.IPC_CREAT | 0o666, 0},
	}
	for _, m := range make3 {
		id, _, errno := unix.Syscall(m.create, uintptr(s.key), m.a, m.b)
		if errno != 0 {
			t.Fatal(errno)
		}
		t.Cleanup(func() {
			const ipcRmid = 0
			op := [2]uintptr{ipcRmid, 0}
			if m.remove == 2 { // semctl has the number of the semaphore before it
				op = [2]uintptr{0, ipcRmid}
			}
			if _, _, errno := unix.Syscall(m.control, id, op[0], op[1]); errno != 0 {
				t.Error(errno)
			}
		})
	}
	shm := filepath.Join("/dev/shm", s.name)
	must(t, os.WriteFile(shm, []byte("of the host"), 0o666))
	t.Cleanup(func() { must(t, os.Remove(shm)) })
	queue, err := unix.BytePtrFromString(s.name)
	must(t, err)
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		must(t, unix.Close(int(fd)))
		if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(queue)), 0, 0); errno != 0 {
			t.Error(errno)
		}
	})
}

// setID stores a program with the set-user-id bit of root.
func (s *surroundings) setID(t *testing.T) {
	t.Helper()
	copyFile(t, prober(t), s.program(), 0o755)
	must(t, os.Chmod(s.program(), 0o755|os.ModeSetuid))
}

func copyFile(t testing.TB, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
}

// flags tell the prober what there is to find; inside is whether it runs in a
// sandbox.
func (s *surroundings) flags(inside bool) []string {
	sum := sha256.Sum256([]byte(s.canary))
	flags := []string{
		"-pid", strconv.Itoa(s.pid), "-port", strconv.Itoa(s.port), "-abstract", s.name, "-path", s.socket(),
		"-key", strconv.Itoa(s.key), "-name", s.name, "-canary", hex.EncodeToString(sum[:]),
	}
	if inside {
		return append(flags, "-suid", setIDInImage)
	}
	// In place of the host's PID 1, which is nobody's to look into.
	return append(flags, "-suid", s.program(), "-init", strconv.Itoa(s.pid), "-control")
}

// hostFact reads a number from a file of the host; 0 where there is none.
func hostFact(path string) (n int) {
	data, err := os.ReadFile(path)
	if err == nil {
		_, _ = fmt.Sscan(string(data), &n)
	}
	return n
}
