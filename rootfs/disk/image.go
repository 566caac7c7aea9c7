package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mkfs is the program that makes file systems. It reads no file of the host's settings: a
// feature that they switch on may be one that the kernel lacks.
const (
	mkfs        = "mkfs.ext4"
	mkfsTimeout = 30 * time.Second
	mkfsPath    = "/usr/sbin:/sbin:/usr/bin:/bin"
)

// Maker makes disks. It runs mkfs.ext4 once for each size, and then repeats what that wrote.
type Maker struct {
	Durable bool // its disks outlive the boot

	mu    sync.Mutex
	known []empty // the latest last
}

// maxKnown bounds the sizes that are kept, and maxContent the bytes of each: those that are
// not zero of an empty file system, some ten blocks for each GiB.
const (
	maxKnown   = 8
	maxContent = 4 << 20
)

// empty is what a file of an empty file system holds beside zeros.
type empty struct {
	size   Size
	blocks []block
}

type block struct {
	at   int64
	data []byte
}

func (m *Maker) create(path string, size Size) (file *os.File, err error) {
	file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err = file.Truncate(size.Bytes); err == nil {
		err = m.fill(file, size)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (m *Maker) fill(file *os.File, size Size) error {
	if made, ok := m.like(size); ok {
		for _, b := range made.blocks {
			if _, err := file.WriteAt(b.data, b.at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := makeFS(file.Name(), size, m.Durable); err != nil {
		return err
	}
	blocks, err := contentOf(file)
	if err == nil && blocks != nil {
		m.keep(empty{size, blocks})
	}
	return err
}

func (m *Maker) like(size Size) (empty, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.known, func(e empty) bool { return e.size == size })
	if i < 0 {
		return empty{}, false
	}
	return m.known[i], true
}

func (m *Maker) keep(e empty) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = append(m.known, e)
	if len(m.known) > maxKnown {
		m.known = slices.Delete(m.known, 0, 1)
	}
}

func makeFS(path string, size Size, durable bool) error {
	program, err := find(mkfs)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mkfsTimeout)
	defer cancel()
	journal := "^has_journal"
	if durable {
		journal = "has_journal"
	}
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-b", strconv.Itoa(blockSize), "-I", "256", "-m", "0", "-N", strconv.FormatInt(size.Inodes, 10),
		"-O", journal+",^resize_inode,sparse_super2", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,num_backup_sb=0", path)
	cmd.Env = []string{"PATH=" + mkfsPath, "LC_ALL=C", "MKE2FS_CONFIG=/nonexistent"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, strings.TrimSpace(string(out[:min(len(out), 512)])))
	}
	return nil
}

// find looks a program up where those of root are, whatever the daemon's PATH is.
func find(name string) (string, error) {
	for dir := range strings.SplitSeq(mkfsPath, ":") {
		path := dir + "/" + name
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in %s", name, mkfsPath)
}

// maxRead bounds the blocks that contentOf reads, where the host's file system does not know
// which of a file were written.
const maxRead = 1 << 15

// contentOf reads the blocks of file that are not zero; nil is more than is kept.
func contentOf(file *os.File) (blocks []block, err error) {
	zero := make([]byte, blockSize)
	at, total := int64(0), 0
	for range maxRead {
		from, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return blocks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("find data of %q: %w", file.Name(), err)
		}
		from -= from % blockSize
		data := make([]byte, blockSize)
		if _, err := file.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		at = from + blockSize
		if bytes.Equal(data, zero) {
			continue
		}
		if total += blockSize; total > maxContent {
			return nil, nil
		}
		if n := len(blocks); n > 0 && blocks[n-1].at+int64(len(blocks[n-1].data)) == from {
			blocks[n-1].data = append(blocks[n-1].data, data...)
			continue
		}
		blocks = append(blocks, block{from, data})
	}
	return nil, nil
}
