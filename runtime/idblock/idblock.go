// Package idblock hands out host user and group ids: to each sandbox a block
// of its own, from a range that one daemon holds at a time.
//
// A block is what keeps two sandboxes apart where the kernel counts or checks
// by user: processes, watches, keyrings, signals (user_namespaces(7)). It is
// never shared with a live sandbox, not even with one of another daemon.
package idblock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Size is the number of ids in a block: as many as an image can use.
const Size = 65536

// Block is a run of Size host ids.
type Block struct{ Base uint32 }

// Range is the ids that one daemon hands out.
type Range struct {
	Base   uint32
	Blocks uint32
}

// Holds reports whether id is in r.
func (r Range) Holds(id uint32) bool { return id >= r.Base && uint64(id) < r.end() }

// end is the first id past r.
func (r Range) end() uint64 { return uint64(r.Base) + uint64(r.Blocks)*Size }

// Allocator hands out the blocks of a range. A claim is a symbolic link named
// after the block that points to the sandbox's ID: it is made in one step,
// holds for whoever looks, and dies with the boot like the sandbox.
type Allocator struct {
	dir string
	ids Range

	mu sync.Mutex // of claims by this process
}

// NewAllocator keeps its claims in dir, which it makes if it is not there.
func NewAllocator(dir string, ids Range) (*Allocator, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "idblock.new", err)
	}
	return &Allocator{dir: dir, ids: ids}, nil
}

// Claim gives the lowest free block to the sandbox id. So the state for blocks grows with
// the number of live sandboxes, not with all sandboxes so far.
func (a *Allocator) Claim(id string) (Block, error) {
	const op = "idblock.claim"
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range a.ids.Blocks {
		err := os.Symlink(id, a.link(n))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return Block{}, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
		return a.block(n), nil
	}
	return Block{}, sbxerr.New(sbxerr.IDRange, op, "all %d blocks of host ids are in use", a.ids.Blocks)
}

// Release gives back every block that id holds. Holding none is success.
func (a *Allocator) Release(id string) error {
	const op = "idblock.release"
	claims, err := a.claims()
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	var errs []error
	for n, owner := range claims {
		if owner != id {
			continue
		}
		errs = append(errs, owndir.Remove(a.link(n)))
	}
	return sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(errs...))
}

// First is a block to show where none is claimed: that of a plan.
func (a *Allocator) First() Block { return a.block(0) }

// Number is the place of b in the range: nobody else has it while b is claimed.
func (a *Allocator) Number(b Block) uint32 { return (b.Base - a.ids.Base) / Size }

// Held lists the blocks that id holds.
func (a *Allocator) Held(id string) ([]Block, error) {
	claims, err := a.claims()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "idblock.held", err)
	}
	var held []Block
	for n, owner := range claims {
		if owner == id {
			held = append(held, a.block(n))
		}
	}
	return held, nil
}

func (a *Allocator) block(n uint32) Block { return Block{Base: a.ids.Base + n*Size} }

func (a *Allocator) link(n uint32) string {
	return filepath.Join(a.dir, strconv.FormatUint(uint64(n), 10))
}

// claims maps block numbers to the sandboxes that hold them.
func (a *Allocator) claims() (map[uint32]string, error) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil, err
	}
	claims := map[uint32]string{}
	for _, e := range entries {
		n, ours := claimed(e)
		if !ours { // see Foreign
			continue
		}
		owner, err := os.Readlink(filepath.Join(a.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // released meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		claims[n] = owner
	}
	return claims, nil
}

// Foreign lists entries among the claims that are no claims. They hold no block.
func (a *Allocator) Foreign() ([]string, error) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "idblock.foreign", err)
	}
	var found []string
	for _, e := range entries {
		if _, ours := claimed(e); !ours {
			found = append(found, filepath.Join(a.dir, e.Name()))
		}
	}
	return found, nil
}

// claimed is the number of the block that an entry claims.
func claimed(e fs.DirEntry) (n uint32, ours bool) {
	number, err := strconv.ParseUint(e.Name(), 10, 32)
	canonical := err == nil && strconv.FormatUint(number, 10) == e.Name()
	return uint32(number), canonical && e.Type() == fs.ModeSymlink
}
