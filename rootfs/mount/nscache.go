package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// UserNSCache keeps user namespaces by their mappings, because making one forks the
// daemon. Its methods may be called at the same time.
type UserNSCache struct {
	make func(uids, gids []IDMap) (*UserNS, error)
	max  int

	mu     sync.Mutex
	closed bool
	kept   []keptNS // the one used last at the end
}

type keptNS struct {
	key string
	ns  *UserNS
}

// NewUserNSCache returns a cache of at most limit namespaces, at least one; beyond,
// the one that was used longest ago is dropped. Each is one descriptor and counts
// against user.max_user_namespaces.
func NewUserNSCache(limit int) *UserNSCache {
	return &UserNSCache{make: NewUserNS, max: max(limit, 1)}
}

// Get returns a user namespace with the given mappings, as NewUserNS does. The
// caller closes what it gets; the cache keeps its own.
func (c *UserNSCache) Get(uids, gids []IDMap) (*UserNS, error) {
	key := fmt.Sprint(uids, gids)
	if ns, err := c.find(key); ns != nil || err != nil {
		return ns, err
	}
	// Not under the lock: others need not wait. Two may make the same.
	ns, err := c.make(uids, gids)
	if err != nil {
		return nil, err
	}
	mine, err := ns.dup()
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	if err := c.keep(key, ns); err != nil {
		return nil, errors.Join(err, mine.Close())
	}
	return mine, nil
}

func (c *UserNSCache) find(key string) (*UserNS, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.kept, func(k keptNS) bool { return k.key == key })
	if i < 0 {
		return nil, nil
	}
	found := c.kept[i]
	c.kept = append(slices.Delete(c.kept, i, i+1), found)
	return found.ns.dup()
}

// keep takes ns over, or closes it.
func (c *UserNSCache) keep(key string, ns *UserNS) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := func(k keptNS) bool { return k.key == key }
	if c.closed || slices.ContainsFunc(c.kept, same) {
		return ns.Close()
	}
	c.kept = append(c.kept, keptNS{key, ns})
	if len(c.kept) <= c.max {
		return nil
	}
	oldest := c.kept[0]
	c.kept = slices.Delete(c.kept, 0, 1)
	return oldest.ns.Close()
}

// Close drops all. Get still works afterwards, but nothing is kept.
func (c *UserNSCache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, k := range c.kept {
		errs = append(errs, k.ns.Close())
	}
	c.kept = nil
	return errors.Join(errs...)
}

// dup returns another hold on the namespace.
func (u *UserNS) dup() (*UserNS, error) {
	fd, err := unix.FcntlInt(u.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.UserNS, "mount.userns", fmt.Errorf("duplicate a descriptor: %w", err))
	}
	return &UserNS{file: os.NewFile(uintptr(fd), u.file.Name()), owner: u.owner}, nil
}
