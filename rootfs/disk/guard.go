package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Guard keeps a reserve of the host's disk free. Disks may promise together more than there is:
// while nothing is left besides the reserve, each of them is full, and programs get ENOSPC.
// Otherwise the host would run out of room, and they would get errors of I/O.
type Guard struct {
	Dir     string // on the host's disk
	Reserve int64
	Points  func() ([]string, error) // where disks are mounted
	Log     *slog.Logger
}

// pauseAt says how long a host with that much room can be left alone.
func pauseAt(room int64) time.Duration {
	switch {
	case room < 1<<30:
		return 10 * time.Millisecond
	case room < 8<<30:
		return 50 * time.Millisecond
	}
	return time.Second
}

// Watch works until ctx ends. Disks that are full then stay so until another guard watches.
func (g Guard) Watch(ctx context.Context) {
	holding := true // perhaps by the guard of a daemon before
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		room, err := g.room()
		if err == nil {
			holding, err = g.step(holding, room)
		}
		pause = pauseAt(room)
		if err != nil {
			pause = time.Second
			g.Log.Warn("keep the reserve of the host's disk", "dir", g.Dir, "err", err)
		}
	}
}

// step fills all disks, or opens those that an earlier step has filled.
func (g Guard) step(holding bool, room int64) (bool, error) {
	margin := g.Reserve / 8 // so that one file does not change it each time
	hold := room <= 0 || holding && room <= margin
	if !hold && !holding {
		return false, nil
	}
	points, err := g.Points()
	if err != nil {
		return holding, err
	}
	changed := false
	for _, point := range points {
		c, e := setHeld(point, hold)
		changed = changed || c
		if e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, errNoDisk) { // it has ended meanwhile
			err = errors.Join(err, e)
		}
	}
	if changed {
		g.Log.Warn(map[bool]string{
			true:  "the host's disk has no room besides its reserve: disks of sandboxes take no more",
			false: "the host's disk has room again: disks of sandboxes take more",
		}[hold], "dir", g.Dir, "reserve", g.Reserve)
	}
	return hold, err
}

// room is what the host's disk has besides the reserve, when it has what is not written yet: at
// most as much again as the reserve, since that may be for other disks.
func (g Guard) room() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(g.Dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %q: %w", g.Dir, err)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return int64(st.Bavail)*st.Bsize - min(unwritten(text), g.Reserve) - g.Reserve, nil
}

// unwritten is how many bytes in memory the host has still to write to its disks.
func unwritten(meminfo []byte) (n int64) {
	for line := range bytes.Lines(meminfo) {
		f := strings.Fields(string(line))
		if len(f) == 3 && (f[0] == "Dirty:" || f[0] == "Writeback:") {
			kib, _ := strconv.ParseInt(f[1], 10, 64) // the kernel's own number
			n += kib << 10
		}
	}
	return n
}

var errNoDisk = errors.New("no disk is mounted there")

// setHeld makes all free room of the disk at point the kernel's reserve, which no file gets, or
// gives the reserve its usual size. It reports whether that was a change.
func setHeld(point string, hold bool) (changed bool, err error) {
	dir, err := os.OpenFile(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0) // keeps the device its own meanwhile
	if err != nil {
		return false, err
	}
	defer dir.Close()
	var st unix.Stat_t
	var sf unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(dir.Fd()), &st), unix.Fstatfs(int(dir.Fd()), &sf)); err != nil {
		return false, fmt.Errorf("look at %q: %w", point, err)
	}
	if sf.Type != unix.EXT4_SUPER_MAGIC || unix.Major(st.Dev) != loopMajor {
		return false, errNoDisk
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false, err
	}
	const most, share = 4096, 50 // of the kernel's usual reserve
	all, usual := sf.Blocks-1, min(most, sf.Blocks/share)
	file := filepath.Join("/sys/fs/ext4", filepath.Base(device), "reserved_clusters")
	text, err := os.ReadFile(file)
	if err != nil || (strings.TrimSpace(string(text)) == strconv.FormatUint(all, 10)) == hold {
		return false, err
	}
	want := usual
	if hold {
		want = all
	}
	return true, os.WriteFile(file, []byte(strconv.FormatUint(want, 10)), 0)
}

// loopMajor is the kernel's number of loop devices.
const loopMajor = 7
