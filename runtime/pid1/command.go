package pid1

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// Command says what to start, and as whom. Nothing is added: Env is all of the
// environment. Limits and umask are those of PID 1.
type Command struct {
	Args   []string // Args[0] is looked up in Env's PATH unless it has a slash
	Env    []string // K=V
	Cwd    string   // absolute, in the sandbox
	UID    uint32   // in the sandbox's user namespace
	GID    uint32
	Groups []uint32 // all supplementary groups

	// The command's streams, of which Start makes blocking ones and leaves the
	// closing to the caller. Nil is the sandbox's own /dev/null.
	Stdin, Stdout, Stderr *os.File
}

// Validate reports every reason why no sandbox could start c.
func (c Command) Validate() error {
	var errs []error
	if len(c.Args) == 0 || c.Args[0] == "" {
		errs = append(errs, errors.New("no command given"))
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %d holds a NUL byte", i))
		}
	}
	for _, kv := range c.Env {
		if err := checkEnv(kv); err != nil {
			errs = append(errs, err)
		}
	}
	if !path.IsAbs(c.Cwd) || strings.ContainsRune(c.Cwd, 0) {
		errs = append(errs, fmt.Errorf("working directory %q is not an absolute path", c.Cwd))
	}
	return errors.Join(errs...)
}

// checkEnv names the variable only: its value may be a secret.
func checkEnv(kv string) error {
	name, _, found := strings.Cut(kv, "=")
	switch {
	case !found || name == "":
		return errors.New("an environment entry is not NAME=VALUE")
	case strings.ContainsRune(kv, 0):
		return fmt.Errorf("environment variable %q holds a NUL byte", name)
	}
	return nil
}

// streams returns the files that go with c's Start, after the payload.
func (c Command) streams() (set initproto.Stdio, files []*os.File) {
	for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			set |= 1 << i
			files = append(files, f)
		}
	}
	return set, files
}

// encode renders what the payload holds.
func (c Command) encode() ([]byte, error) {
	b, err := initproto.Payload{
		Args: c.Args, Env: c.Env, Cwd: c.Cwd, UID: c.UID, GID: c.GID, Groups: c.Groups,
	}.Encode()
	if err != nil {
		return nil, fmt.Errorf("arguments and environment exceed %d bytes: %w", initproto.MaxPayload, err)
	}
	return b, nil
}

// sealed puts b into a memfd that nobody can change any more. Its pages are
// charged to the daemon for as long as PID 1 keeps the descriptor, which seals
// bound to the size of b.
func sealed(b []byte) (_ *os.File, err error) {
	fd, err := memfd()
	if err != nil {
		return nil, fmt.Errorf("make memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "payload")
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if _, err := f.Write(b); err != nil {
		return nil, fmt.Errorf("write memfd: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	return f, nil
}

// memfd asks for one that can never be executed, which kernels before 6.3 do
// not know (memfd_create(2)).
func memfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("caisson-start", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		return unix.MemfdCreate("caisson-start", flags)
	}
	return fd, err
}

// unblock clears O_NONBLOCK, which Go sets on its pipes and which the command
// would inherit: few programs expect EAGAIN from their standard streams.
func unblock(files []*os.File) error {
	for _, f := range files {
		var err error
		if cerr := control(f, func(fd int) { err = unix.SetNonblock(fd, false) }); cerr != nil {
			return cerr
		}
		if err != nil {
			return fmt.Errorf("make %q blocking: %w", f.Name(), err)
		}
	}
	return nil
}
