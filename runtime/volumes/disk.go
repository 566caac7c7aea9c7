package volumes

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
)

// What the directory of a volume with a size has beside that of others. Its data lies on the disk.
const (
	sizeName  = "size.json"
	imageName = "image"
	pointName = "disk"
	maxRecord = 4 << 10
)

// Size bounds a volume; zero is none.
type Size = disk.Size

// place is the directory of a volume.
type place string

func (p place) data() string  { return filepath.Join(string(p), dataName) }
func (p place) image() string { return filepath.Join(string(p), imageName) }
func (p place) point() string { return filepath.Join(string(p), pointName) }
func (p place) onDisk() place { return place(p.point()) }

// size is the size of the volume; zero is none.
func (p place) size() (size disk.Size, err error) {
	text, err := owndir.ReadFile(filepath.Join(string(p), sizeName), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return size, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &size)
	}
	return size, err
}

// fill makes the data of a volume. It belongs to a user.
func (p place) fill(m *disk.Maker, size disk.Size, uid, gid int) error {
	if size.Bytes == 0 {
		return makeData(p.data(), uid, gid)
	}
	if err := owndir.Mkdir(p.point(), 0o700); err != nil {
		return err
	}
	if err := m.Attach(p.image(), p.point(), size); err != nil {
		return err
	}
	if err := failpoint.At("volume/image"); err != nil {
		return err
	}
	if err := makeData(p.onDisk().data(), uid, gid); err != nil {
		return err
	}
	if err := syncFS(p.point()); err != nil {
		return err
	}
	text, err := json.Marshal(size)
	if err == nil {
		err = owndir.WriteFile(filepath.Join(string(p), sizeName), text)
	}
	return err
}

func makeData(path string, uid, gid int) error {
	if err := owndir.Mkdir(path, 0o755); err != nil {
		return err
	}
	return owndir.Give(path, 0o755, uid, gid)
}

func syncFS(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// open returns where the data is, on a disk that is mounted then.
func (p place) open() (data string, err error) {
	size, err := p.size()
	if err != nil || size.Bytes == 0 {
		return p.data(), err
	}
	mounted, err := mount.IsPoint(p.point())
	if err == nil && !mounted {
		err = disk.Mount(p.image(), p.point())
	}
	return p.onDisk().data(), err
}

// use is how full a volume with a size is; zero of others.
func (p place) use(size disk.Size) (disk.Use, error) {
	if size.Bytes == 0 {
		return disk.Use{}, nil
	}
	return disk.UseOfFile(p.image(), p.point())
}

// remove removes the volume, and detaches its disk.
func (p place) remove() error {
	if err := disk.Detach(p.image(), p.point()); err != nil {
		return err
	}
	return owndir.RemoveTree(string(p))
}

// checkSize refuses a size that no volume can have, and one that v does not have.
func checkSize(v Volume, asked disk.Size) error {
	if asked == (disk.Size{}) || asked.Bytes == v.Size.Bytes && (asked.Inodes == 0 || asked.Filled() == v.Size.Filled()) {
		return nil
	}
	has := "no size"
	if v.Size.Bytes != 0 {
		has = describe(v.Size)
	}
	return sbxerr.New(sbxerr.VolumeSize, "volumes.create", "volume %q has %s, and not %s", v.Name, has, describe(asked))
}

func describe(s disk.Size) string {
	return units.FormatSize(s.Bytes) + " and " + strconv.FormatInt(s.Filled().Inodes, 10) + " inodes"
}

// sums knows the sizes of volumes, for quotas.
type sums struct {
	mu    sync.Mutex
	bytes map[Key]int64
}

func (s *sums) add(k Key, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes == nil {
		s.bytes = map[Key]int64{}
	}
	s.bytes[k] = bytes
}

func (s *sums) remove(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bytes, k)
}

// Load takes the volumes of an earlier daemon into account.
func (s *Service) Load() error {
	list, err := s.store.List()
	for _, v := range list {
		if v.Size.Bytes != 0 {
			s.store.sums.add(v.Key, v.Size.Bytes)
		}
	}
	return err
}

// Sized is the sum of the sizes of a user's volumes.
func (s *Service) Sized(owner uint32) (sum int64) {
	s.store.sums.mu.Lock()
	defer s.store.sums.mu.Unlock()
	for k, n := range s.store.sums.bytes {
		if k.Owner == owner {
			sum += n
		}
	}
	return sum
}

// Points are where the disks of volumes are mounted. It reads no file: a guard asks every 10 ms
// while the host's disk is full.
func (s *Service) Points() (points []string) {
	s.store.sums.mu.Lock()
	defer s.store.sums.mu.Unlock()
	for k := range s.store.sums.bytes {
		points = append(points, s.store.place(k).point())
	}
	return points
}

// Full are those of a user's volumes of these names that have a size and no room left.
func (s *Service) Full(owner uint32, names []string) (full []string, err error) {
	for _, name := range names {
		k := Key{Owner: owner, Name: name}
		v, e := s.store.Get(k)
		if e != nil || v.Size.Bytes == 0 {
			err = errors.Join(err, e)
			continue
		}
		use, e := disk.UseOf(s.store.place(k).point())
		if err = errors.Join(err, e); e == nil && use.Full() {
			full = append(full, name)
		}
	}
	return full, err
}

// Close takes the disks of all volumes off. No sandbox is left.
func (s *Service) Close() error { return s.store.detach() }

func (s *Store) detach() (err error) {
	list, err := s.List()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range list {
		point := s.place(v.Key).point()
		mounted, e := mount.IsPoint(point)
		if mounted {
			e = errors.Join(e, disk.Unmount(point))
		}
		err = errors.Join(err, e)
	}
	return err
}
