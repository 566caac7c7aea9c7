package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

const mountsName = "mount namespace"

var errOwnMounts = errors.New("the daemon is a service with a mount namespace of its own: the roots of its sandboxes would end with it, and no sandbox would outlive a restart")

// examineMounts finds out whether the mounts of sandboxes outlive the daemon: they are in the
// daemon's mount namespace, and the next one must be in the same.
func examineMounts(context.Context, Host) []runtime.Check {
	own, err := os.Readlink("/proc/self/ns/mnt")
	first, err1 := os.Readlink("/proc/1/ns/mnt")
	return judgeMounts(own, first, errors.Join(err, err1), systemdStarted(os.Getenv("SYSTEMD_EXEC_PID")))
}

// systemdStarted reports whether systemd itself executed this process, by the variable that
// it sets for each process of a unit. Processes that a unit's process started inherit it.
func systemdStarted(pid string) bool { return pid == strconv.Itoa(os.Getpid()) }

// judgeMounts refuses the namespaces that systemd makes anew at each start. In a container
// that shares the host's processes, or below unshare(1), the next daemon may come into the
// same one.
func judgeMounts(own, first string, unread error, service bool) []runtime.Check {
	switch {
	case unread != nil:
		return []runtime.Check{{Name: mountsName, Status: Unknown, Detail: unread.Error(), Code: string(sbxerr.Rights), Remedy: remedy(sbxerr.Rights, unread)}}
	case own == first:
		return ok(mountsName, "that of the host's first process")
	case service:
		const remedy = "remove from the daemon's unit what gives it a mount namespace: PrivateTmp=, PrivateDevices=, PrivateMounts=, ProtectSystem=, ProtectHome=, ProtectKernel…=, ProtectProc=, ReadWritePaths=, ReadOnlyPaths=, InaccessiblePaths=, BindPaths=, TemporaryFileSystem=, RootDirectory= and the like (systemctl cat caissond); then systemctl daemon-reload and systemctl restart caissond"
		return problem(mountsName, Fail, sbxerr.DaemonConf, sbxerr.WithRemedy(sbxerr.DaemonConf, "doctor.mounts", errOwnMounts, remedy))
	}
	const remedy = "start each daemon in the same mount namespace, or that of the host's first process (nsenter -t 1 -m)"
	err := fmt.Errorf("%s, the host's first process is in %s: sandboxes outlive the daemon only if the next one is in the same namespace", own, first)
	return problem(mountsName, Warn, sbxerr.DaemonConf, sbxerr.WithRemedy(sbxerr.DaemonConf, "doctor.mounts", err, remedy))
}
