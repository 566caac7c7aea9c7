package oci

import (
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// InitMount is where the sandbox sees Config.InitDir: the directory of PID 1
// and of its socket.
const InitMount = "/run/caisson"

// IDBlockSize is the number of host ids that belong to one sandbox.
const IDBlockSize = 65536

// Config is all that a specification is made of: plain data, checked before
// any system call. Every field is required unless it says otherwise; a zero
// value never means "the host's" or "unlimited".
type Config struct {
	// ID is the sandbox's: 26 characters of a-z and 2-7. It is also the last element of
	// StateDir and of CgroupsPath.
	ID string
	// Hostname, optional, is a label of RFC 1123. Empty is ID.
	Hostname string
	Process  Process
	Allowed  Allowed // optional
	// StateDir is the directory of this sandbox on the host, absolute and
	// clean. RootPath, NetNSPath, UserNSPath, InitDir, DevDir and the source of every mount are
	// below it, so a specification can name nothing else of the host.
	StateDir string
	// RootPath is the root file system, already mounted by the caller with
	// nosuid and nodev; the runtime makes it read-only.
	RootPath string
	// InitDir is bound read-only to InitMount.
	InitDir string
	// DevDir is bound read-only to /dev: a mount with the device nodes of this
	// sandbox alone, made by the caller without nodev. The name is dev.
	DevDir string
	// HomeDir, optional, is bound to /home: the home directories of the image, made
	// writable by the caller. Without it an empty tmpfs is there.
	HomeDir string
	// NetNSPath is a network namespace made by the caller and owned by the
	// host's user namespace, so nobody inside has power over it.
	NetNSPath string
	// UserNSPath is a user namespace that the caller made with the mapping IDMap. If the
	// runtime made it, it would belong to root, and the sandbox would use up root's limits
	// that the kernel counts for each user (namespaces(7)).
	UserNSPath string
	IDMap      IDMap
	// CgroupsPath is absolute below the hierarchies' roots: /<instance>/<ID>.
	CgroupsPath string
	Seccomp     *specs.LinuxSeccomp
	Resources   *specs.LinuxResources
	Rlimits     []specs.POSIXRlimit
	// OOMScoreAdj is 1 to 1000: when the host itself runs out of memory, a
	// sandbox ends before the host's own processes (proc(5)).
	OOMScoreAdj int
	// TmpfsBytes and TmpfsInodes bound each tmpfs of the sandbox.
	TmpfsBytes int64
	// ShmBytes, optional, is the size of /dev/shm instead. 0 is TmpfsBytes.
	ShmBytes    int64
	TmpfsInodes int64
	// Mounts, optional, come on top of the base set: binds from below
	// StateDir, and tmpfs with the one option size=BYTES. Of the options of a bind only rw, ro, rro, exec and noexec change
	// something: without "rw" a mount is read-only, without "exec" it is noexec;
	// bind, nosuid, nodev and rprivate may be spelled out, and always hold.
	Mounts []specs.Mount
	// Annotations, optional, hold only keys of AnnotationKeys.
	Annotations map[string]string
}

// Allowed lists the rights that a sandbox may have and that others lack. A step of a build
// has all of them.
type Allowed struct {
	WritableRoot bool // its root can be written, and nothing is mounted on /home
	RootUser     bool // PID 1 may be root inside
	Setup        bool // that root has SetupCapabilities in the sandbox's user namespace
}

// SetupCapabilities are those of root in a sandbox with Allowed.Setup: package managers
// give files away, replace those of others, and become other users. All other sandboxes,
// and users other than root, have none.
var SetupCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

// Process is PID 1 of the sandbox. There is no terminal and no capability to
// ask for.
type Process struct {
	Args []string // Args[0] is below InitMount: PID 1 is never the image's
	Env  []string // K=V, each key once; HOME and PATH are required
	Cwd  string
	// UID and GID are ids inside the sandbox, 1 to 65534. Zero is refused, so that a
	// missing value never means root, except with Allowed.RootUser.
	UID, GID       uint32
	AdditionalGIDs []uint32 // optional
}

// IDMap says which host ids are the sandbox's: inside 0 is HostBase, and Size
// ids follow. Size is IDBlockSize.
type IDMap struct {
	HostBase uint32
	Size     uint32
}

// checks run in this order; each sees only the Config, so each is a table test.
var checks = []func(Config) error{
	checkID,
	checkProcess,
	checkEnv,
	checkIDs,
	checkPaths,
	checkCgroupsPath,
	checkMounts,
	checkSeccomp,
	checkResources,
	checkRlimits,
	checkBounds,
	checkAnnotations,
}

// Build turns c into a specification, or reports every reason why it cannot.
func Build(c Config) (*specs.Spec, error) {
	var errs []error
	for _, check := range checks {
		errs = append(errs, check(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Config, "oci.build", err)
	}
	return assemble(c), nil
}
