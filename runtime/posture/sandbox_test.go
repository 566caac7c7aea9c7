package posture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/oci"
	rootmount "github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/seccomp"
	"github.com/caisson-run/caisson/tests/need"
)

const (
	realID   = "abcdefghijklmnopqrstuvwx27"
	realBase = 1946157056 // the block after the default range, so no daemon's
	realUID  = 1000
)

// sandbox is a container made by a real runc from a specification of oci.Build.
type sandbox struct {
	pid    int
	pidfd  *os.File
	spec   *specs.Spec
	top    string // directory of everything
	cgroup string // parent
	runc   string
	users  *rootmount.UserNS
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// requireRunc returns the runc to test with: CAISSON_RUNC, or that of
// CAISSON_BIN_DIR.
func requireRunc(t testing.TB) string {
	t.Helper()
	need.Root(t, "it makes a container")
	if runc := os.Getenv("CAISSON_RUNC"); runc != "" {
		return runc
	}
	return filepath.Join(need.Bin(t), "runc")
}

// startSandbox makes a sandbox as the daemon does, but for the layers of its
// root, and waits until PID 1 has connected. Everything goes with the test.
func startSandbox(t testing.TB) *sandbox {
	t.Helper()
	s := &sandbox{runc: requireRunc(t), cgroup: "caisson-posture-" + strconv.Itoa(os.Getpid())}
	s.top = makeTop(t)
	state := filepath.Join(s.top, realID)
	for _, dir := range []string{"", "rootfs", "init", "own", "workspace"} {
		must(t, os.MkdirAll(filepath.Join(state, dir), 0o711))
	}
	s.spec = s.buildSpec(t, state)
	makeRoot(t, filepath.Join(state, "rootfs"))
	bindPrivate(t, filepath.Join(state, "workspace"), 0)
	own := filepath.Join(state, "own")
	must(t, rootmount.AttachOwn(own, 1<<20))
	t.Cleanup(func() { must(t, rootmount.RemovePoint(own)) })
	s.users = makeUserNS(t, filepath.Join(state, "userns"))
	makeNetNS(t, filepath.Join(state, "netns"))
	listener := makeInit(t, filepath.Join(state, "init"))
	s.run(t, state)
	must(t, listener.SetDeadline(time.Now().Add(10*time.Second)))
	conn, err := listener.AcceptUnix()
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	_, err = conn.Read(make([]byte, 8))
	must(t, err)
	return s
}

func (s *sandbox) declared() Declared {
	return Declared{PID: s.pid, PIDFD: s.pidfd, Spec: s.spec, Listener: pid1, Sockets: 1}
}

// makeTop makes a directory that the sandbox's root may pass through; the
// test's own temporary directory is closed to it. As the daemon's, it is a tmpfs
// of its own, because many hosts allow nothing to be executed in /run.
func makeTop(t testing.TB) string {
	top, err := os.MkdirTemp("/run", "caisson-posture-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(top)) })
	must(t, unix.Mount("caisson", top, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711"))
	t.Cleanup(func() { must(t, unix.Unmount(top, unix.MNT_DETACH)) })
	return top
}

func (s *sandbox) buildSpec(t testing.TB, state string) *specs.Spec {
	host, err := cgroups.Detect()
	must(t, err)
	resources, err := cgroups.Limits{PIDs: 256, MemoryBytes: 512 << 20, MilliCPU: 1000}.Resources(host)
	must(t, err)
	profile, err := seccomp.Lookup(seccomp.DefaultProfile)
	must(t, err)
	filter, err := profile.Spec(seccomp.Options{})
	must(t, err)
	own, err := os.ReadFile("/proc/self/limits")
	must(t, err)
	have, err := ParseLimits(string(own))
	must(t, err)
	limits, warnings := oci.ClampRlimits(oci.Rlimits(oci.RlimitValues{OpenFiles: 1024, OpenFilesMax: 4096, PIDs: 256}), have)
	if len(warnings) > 0 {
		t.Log(warnings)
	}
	spec, err := oci.Build(oci.Config{
		ID: realID, StateDir: state, RootPath: state + "/rootfs", InitDir: state + "/init", DevDir: rootmount.DevDir(state + "/own"), NetNSPath: state + "/netns", UserNSPath: state + "/userns",
		Process: oci.Process{
			Args: []string{oci.InitMount + "/caisson-init"}, Env: []string{"PATH=/bin", "HOME=/home"}, Cwd: "/",
			UID: realUID, GID: realUID, AdditionalGIDs: []uint32{2000, 44},
		},
		IDMap:       oci.IDMap{HostBase: realBase, Size: oci.IDBlockSize},
		CgroupsPath: "/" + s.cgroup + "/" + realID,
		Seccomp:     filter, Resources: resources, Rlimits: limits,
		OOMScoreAdj: 500, TmpfsBytes: 64<<20 + 1, TmpfsInodes: 65536, // not a whole page
		Mounts: []specs.Mount{{Destination: "/workspace", Source: state + "/workspace", Options: []string{"rw", "exec"}}},
	})
	must(t, err)
	must(t, oci.Verify(spec))
	t.Cleanup(func() { must(t, cgroups.RemoveParent(context.Background(), host, s.cgroup)) })
	return spec
}

// makeRoot makes the smallest root that has what oci expects of one.
func makeRoot(t testing.TB, root string) {
	for _, dir := range strings.Fields("proc sys dev tmp run home var/tmp workspace bin") {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	copyFile(t, "/bin/busybox", filepath.Join(root, "bin/busybox"))
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(path, realBase, realBase)
	}))
	bindPrivate(t, root, unix.MS_RDONLY)
}

// bindPrivate makes dir a mount of its own, as the daemon's are.
func bindPrivate(t testing.TB, dir string, flags uintptr) {
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, ""))
}

// makeUserNS binds the user namespace that the sandbox joins to file.
func makeUserNS(t testing.TB, file string) *rootmount.UserNS {
	ids := []rootmount.IDMap{{Disk: 0, Host: realBase, Size: oci.IDBlockSize}}
	ns, err := rootmount.NewOwnedUserNS(realBase, ids, ids)
	must(t, err)
	must(t, ns.Pin(file))
	t.Cleanup(func() { must(t, errors.Join(rootmount.Unpin(file), ns.Close())) })
	return ns
}

// makeNetNS binds a new network namespace, owned by the host's user namespace,
// to file. The thread that was in it ends with its goroutine.
func makeNetNS(t testing.TB, file string) {
	must(t, os.WriteFile(file, nil, 0o600))
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	must(t, <-done)
	t.Cleanup(func() { must(t, unix.Unmount(file, unix.MNT_DETACH)) })
}

func makeInit(t testing.TB, dir string) *net.UnixListener {
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "caisson-init"), "./testdata/pid1")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build pid 1: %v\n%s", err, out)
	}
	socket := filepath.Join(dir, "init.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { must(t, listener.Close()) })
	must(t, os.Chmod(socket, 0o666))
	return listener
}

func (s *sandbox) run(t testing.TB, bundle string) {
	spec, process := *s.spec, *s.spec.Process
	process.Rlimits, spec.Process = nil, &process // set below, as the daemon does
	config, err := json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600))
	t.Cleanup(func() { s.command(t, "delete", "--force", realID) })
	pidFile := filepath.Join(s.top, "pid")
	s.command(t, "create", "--bundle", bundle, "--pid-file", pidFile, realID)
	text, err := os.ReadFile(pidFile)
	must(t, err)
	s.pid, err = strconv.Atoi(string(text))
	must(t, err)
	fd, err := unix.PidfdOpen(s.pid, 0)
	must(t, err)
	s.pidfd = os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { must(t, s.pidfd.Close()) })
	must(t, s.users.AsOwner(func() error { return setLimits(s.pid, s.spec.Process.Rlimits) }))
	s.command(t, "start", realID)
}

func setLimits(pid int, limits []specs.POSIXRlimit) error {
	numbers := map[string]int{
		"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE,
		"RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC,
		"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
	}
	for _, l := range limits {
		if err := unix.Prlimit(pid, numbers[l.Type], &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("%s: %w", l.Type, err)
		}
	}
	return nil
}

// command runs runc with /dev/null as its streams, because the container
// inherits them; what it has to say is in its log.
func (s *sandbox) command(t testing.TB, args ...string) {
	t.Helper()
	log := filepath.Join(s.top, "log")
	if err := exec.Command(s.runc, append([]string{"--root", filepath.Join(s.top, "runc"), "--log", log}, args...)...).Run(); err != nil {
		text, _ := os.ReadFile(log)
		t.Fatalf("runc %s: %v\n%s", args[0], err, text)
	}
}

func copyFile(t testing.TB, from, to string) {
	in, err := os.Open(from)
	must(t, err)
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, in.Close())
	must(t, out.Close())
}

// enterMounts runs fn in the mount namespace ns. The thread ends with its
// goroutine, because it is never unlocked.
func enterMounts(ns *os.File, fn func() error) error {
	goruntime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2) asks for it
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	return fn()
}
