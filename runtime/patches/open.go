package patches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/patch"
	"github.com/caisson-run/caisson/runtime/changes"
)

// give opens a file that caisson-images asks for. It may be another one than the walk saw: then
// it is that of which the content is shown.
func (m *maker) give(_ context.Context, request json.RawMessage) (*os.File, error) {
	var ask patch.Ask
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, err
	}
	if ask.File < 0 || ask.File >= len(m.files) {
		return nil, fmt.Errorf("there is no file %d", ask.File)
	}
	f := m.files[ask.File]
	side := f.Old
	if ask.New {
		side = f.New
	}
	if side == nil || side.Mode == patch.ModeLink || f.Same {
		return nil, fmt.Errorf("file %d has no content there", ask.File)
	}
	if ask.New {
		return openFile(m.layers.Upper, string(side.Name))
	}
	var file *os.File
	err := m.as.Do(func() (err error) {
		file, err = openFile(m.layers.Lower, string(side.Name))
		return err
	})
	return file, err
}

// openFile opens a regular file below root to read it, with the rights of this thread. Nothing
// else is opened: that could have an effect, or never return.
func openFile(root *os.File, name string) (*os.File, error) {
	fd, err := changes.OpenBeneath(int(root.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is no regular file any more")
	}
	file, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(file), "file"), nil
}
