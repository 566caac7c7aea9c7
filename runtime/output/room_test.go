package output

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// A room bounds what stores keep together, whatever each of them may keep alone.
func TestRoom(t *testing.T) {
	room := NewRoom(1 << 20)
	stores := []*Store{shared(t, room, 1<<30), shared(t, room, 1<<30), shared(t, room, 1<<30)}
	flood, quiet, late := stores[0], stores[1], stores[2]
	put(t, flood, 3<<20)
	if err := flood.Lost(); !errors.Is(err, sbxerr.Limits) || !strings.Contains(sbxerr.RemedyOf(err), "sandboxes.kept_output") {
		t.Errorf("past the room: %v", err)
	}
	if n, cut := flood.Total(); n != 3<<20 || !cut || keptOf(flood) > 1<<20+MaxChunk {
		t.Errorf("Total = %d, %v, kept %d", n, cut, keptOf(flood))
	}
	put(t, quiet, 10<<10)
	if err := quiet.Lost(); err != nil || keptOf(quiet) != 10<<10 {
		t.Errorf("a few lines in a full room: kept %d, %v", keptOf(quiet), err)
	}
	flood.Finish()
	put(t, late, 512<<10)
	if err := late.Lost(); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	quiet.Finish()
	late.Finish()
	if n := room.used.Load(); n != 0 {
		t.Errorf("%d bytes stay counted", n)
	}
}

// What a limit cuts takes no room.
func TestRoomOfACutStream(t *testing.T) {
	room := NewRoom(4 << 20)
	s := shared(t, room, 1<<20)
	put(t, s, 32<<20)
	s.Finish()
	if err := s.Lost(); err != nil || keptOf(s) != 1<<20 {
		t.Errorf("kept %d, %v", keptOf(s), err)
	}
	if n := blocks(t, s); n > 1<<20+2*page {
		t.Errorf("%d bytes are on the disk, %d are kept", n, keptOf(s))
	}
}

// A dropped stream frees the disk, and its readers know what they miss; so does
// a store that is opened later.
func TestDrop(t *testing.T) {
	s := create(t, 1<<20)
	put(t, s, 100<<10)
	s.Finish()
	s.Drop()
	again, err := Open(Options{Path: s.o.Path, Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	again.Finish()
	for who, s := range map[string]*Store{"dropped": s, "opened": again} {
		if n, cut := s.Total(); n != 100<<10 || !cut || keptOf(s) != 0 || blocks(t, s) != 0 {
			t.Errorf("%s: Total = %d, %v, kept %d, %d on the disk", who, n, cut, keptOf(s), blocks(t, s))
		}
		var out bytes.Buffer
		next, err := s.Follow(t.Context(), marked{&out}, 10, true)
		if !errors.Is(err, sbxerr.Limits) || next != 100<<10 || out.String() != Mark(100<<10-10) {
			t.Errorf("%s: a reader got %q, stands at %d: %v", who, out.String(), next, err)
		}
	}
	empty := create(t, 10)
	empty.Finish()
	empty.Drop()
	if _, err := empty.Follow(t.Context(), io.Discard, 0, true); err != nil || empty.Lost() != nil {
		t.Errorf("a reader of a stream without bytes: %v", err)
	}
}

func put(t testing.TB, s *Store, n int) {
	t.Helper()
	if _, err := s.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

func blocks(t testing.TB, s *Store) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(s.o.Path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func shared(t testing.TB, room *Room, limit int64) *Store {
	t.Helper()
	return createOf(t, Options{Path: filepath.Join(t.TempDir(), "stdout"), Limit: limit, Room: room})
}

// What a store has on the disk is what counts in the room of a later daemon, not the
// holes in it.
func TestRoomAfterARestart(t *testing.T) {
	need.Root(t, "it opens what may not be written")
	const limit = 1 << 20
	room := NewRoom(4 << 20)
	put(t, shared(t, room, 1<<30), 3<<20)
	full, broken := shared(t, room, limit), create(t, limit)
	put(t, full, 16<<20)
	put(t, broken, 16<<20)
	broken.lose(unix.ENOSPC)

	room = NewRoom(4 << 20)
	for path, why := range map[string]error{full.o.Path: nil, broken.o.Path: sbxerr.StateDir} {
		s := openOf(t, Options{Path: path, Limit: limit, Room: room})
		s.Write([]byte("x"))
		if n, cut := s.Total(); !errors.Is(s.Lost(), why) || n != 16<<20+1 || !cut {
			t.Errorf("Total = %d, %v, lost because %v", n, cut, s.Lost())
		}
	}
	if n := room.used.Load(); n > limit+minStep {
		t.Errorf("%d bytes count", n)
	}
	late := shared(t, room, 1<<30)
	put(t, late, 1<<20)
	if err := late.Lost(); err != nil {
		t.Errorf("another one, with room for it: %v", err)
	}
}
