package shimcall

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/tests/need"
)

// A shim that caisson-shim starts is what containerd's program would have started.
func TestServeIsTheProgramsOwn(t *testing.T) {
	need.Root(t, "it runs shims")
	bin := need.Bin(t)
	sockets := short(t)
	ours := begin(t, filepath.Join(bin, "caisson-shim"), sockets, "ours"+strconv.Itoa(os.Getpid()))
	theirs := begin(t, filepath.Join(bin, Program), sockets, "theirs"+strconv.Itoa(os.Getpid()))
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("ours:   %+v\ntheirs: %+v", ours, theirs)
	}
	if len(ours.env) < 4 || len(ours.args) != 8 || len(ours.bundle) != 3 || ours.score == "" || !ours.ownGroup {
		t.Errorf("the comparison misses something: %+v", ours)
	}
}

// seen is what others see of a shim.
type seen struct {
	args, env   []string
	descriptors []string
	bundle      []string // what is in it, and where links lead
	score       string
	ownGroup    bool
	socket      os.FileMode
}

// begin calls program as containerd does, to start a shim for the container id, and
// returns what is to be seen of that.
func begin(t *testing.T, program, sockets, id string) seen {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), id)
	c := Call{Start, "ns", id, "/run/c.sock"}
	params, err := proto.Marshal(&bootstrap.BootstrapParams{InstanceID: id, Namespace: "ns", ContainerdGrpcAddress: c.Address, SocketDir: &sockets})
	must(t, err)
	must(t, os.Mkdir(bundle, 0o700))
	write(t, filepath.Join(bundle, "config.json"), spec(id))
	must(t, unix.Mkfifo(filepath.Join(bundle, "log"), 0o600))
	log, err := os.OpenFile(filepath.Join(bundle, "log"), os.O_RDWR, 0)
	must(t, err)
	defer log.Close()

	cmd := exec.CommandContext(t.Context(), program, "-namespace", "ns", "-address", c.Address, "-publish-binary", "/bin/containerd", "-id", id, Start)
	cmd.Dir, cmd.Stdin = bundle, bytes.NewReader(params)
	cmd.Env = []string{"GOMAXPROCS=2", "TTRPC_ADDRESS=/run/c.sock.ttrpc", SocketsEnv + "=" + sockets}
	answer, err := cmd.Output()
	must(t, err)
	pid := find(t, bundle)
	defer unix.Kill(pid, unix.SIGKILL)
	socket := filepath.Join(sockets, SocketName(c.Address, c.Namespace, id))
	if want := bootstrapResult(socket); !bytes.Equal(answer, want) {
		t.Errorf("answer %q, want %q", answer, want)
	}
	return look(t, pid, bundle, socket)
}

// find waits until the shim whose directory is bundle has opened its log, from when on
// it is as it stays.
func find(t *testing.T, bundle string) int {
	t.Helper()
	for t.Context().Err() == nil {
		logs, err := filepath.Glob("/proc/[0-9]*/fd/2")
		must(t, err)
		for _, l := range logs {
			target, _ := os.Readlink(l)
			dir, _ := os.Readlink(filepath.Join(filepath.Dir(filepath.Dir(l)), "cwd"))
			if target == filepath.Join(bundle, "log") && dir == bundle {
				pid, err := strconv.Atoi(strings.Split(l, "/")[2])
				must(t, err)
				return pid
			}
		}
		time.Sleep(10 * time.Millisecond) // nothing announces it
	}
	t.Fatal("no shim")
	return 0
}

func look(t *testing.T, pid int, bundle, socket string) (s seen) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	read := func(name string) string {
		data, err := os.ReadFile(proc + name)
		must(t, err)
		return strings.ReplaceAll(string(data), filepath.Base(bundle), "ID")
	}
	s.args, s.env, s.score = strings.Split(read("cmdline"), "\x00"), strings.Split(read("environ"), "\x00"), read("oom_score_adj")
	slices.Sort(s.env)
	for _, fd := range []string{"0", "1"} { // 2 is its log; 3, the socket, it soon exchanges for another
		target, err := os.Readlink(proc + "fd/" + fd)
		must(t, err)
		s.descriptors = append(s.descriptors, target)
	}
	conn, err := net.Dial("unix", socket)
	must(t, err)
	must(t, conn.Close())
	group, err := unix.Getpgid(pid)
	must(t, err)
	s.ownGroup = group == pid
	entries, err := os.ReadDir(bundle)
	must(t, err)
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(bundle, e.Name()))
		s.bundle = append(s.bundle, e.Name()+" "+target)
	}
	st, err := os.Stat(socket)
	must(t, err)
	s.socket = st.Mode()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
