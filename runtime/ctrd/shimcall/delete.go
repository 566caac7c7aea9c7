package shimcall

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// gone answers with how the container's first process ended, if the shim has noted
// that and nothing of the container is left: neither what the OCI runtime keeps of
// it, nor a mount.
func (c Call) gone(bundle string) (answer []byte, ok bool) {
	var options struct{ Root string }
	if err := readJSON(filepath.Join(bundle, "options.json"), &options); err != nil || options.Root == "" {
		return nil, false
	}
	if _, err := os.Lstat(filepath.Join(options.Root, c.Namespace, c.ID)); !errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if !plainAndEmpty(filepath.Join(bundle, "rootfs")) {
		return nil, false
	}
	var e exit
	if err := readJSON(filepath.Join(bundle, "exit.json"), &e); err != nil || e.Pid <= 0 || e.Status < 0 || e.Timestamp.IsZero() {
		return nil, false
	}
	return e.deleteResponse(), true
}

// exit is what the shim notes of the end of the first process (go-runc, Exit).
type exit struct {
	Timestamp time.Time
	Pid       int
	Status    int
}

// deleteResponse encodes containerd.task.v2.DeleteResponse.
func (e exit) deleteResponse() (b []byte) {
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(e.Pid))
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(e.Status))
	var at []byte // google.protobuf.Timestamp
	at = protowire.AppendTag(at, 1, protowire.VarintType)
	at = protowire.AppendVarint(at, uint64(e.Timestamp.Unix()))
	at = protowire.AppendTag(at, 2, protowire.VarintType)
	at = protowire.AppendVarint(at, uint64(e.Timestamp.Nanosecond()))
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	return protowire.AppendBytes(b, at)
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// plainAndEmpty reports whether dir is not there, or is an empty directory and no
// mount point. A kernel that cannot tell (before 5.8) says no.
func plainAndEmpty(dir string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}
