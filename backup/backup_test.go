package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const id = "abcdefghijklmnopqrstuvwxyz"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(text), 0o600))
}

// filled is a root with one item of each part, and what does not go along.
func filled(t *testing.T) string {
	root := t.TempDir()
	data := filepath.Join(root, "volumes/1000+data/data")
	put(t, filepath.Join(data, "a"), "text")
	check(t, os.Chmod(filepath.Join(data, "a"), 0o641))
	check(t, os.Link(filepath.Join(data, "a"), filepath.Join(data, "second")))
	check(t, os.Symlink("../../../../etc/passwd", filepath.Join(data, "link")))
	check(t, unix.Mkfifo(filepath.Join(data, "fifo"), 0o600))
	put(t, filepath.Join(data, strings.Repeat("long", 60)), "")
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	check(t, os.Chtimes(filepath.Join(root, "volumes/1000+data"), old, old))
	disk := filepath.Join(root, "snapshots/7+snap/disk")
	put(t, disk, "begin")
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteAt([]byte("middle"), 64<<20)
	check(t, errors.Join(err, f.Truncate(128<<20), f.Close()))
	put(t, filepath.Join(root, "changesets", id, "changeset.json"), "{}")
	put(t, filepath.Join(root, "secrets.json"), `{"key":"env:KEY"}`)
	put(t, filepath.Join(root, "keys.json"), "[]")
	put(t, filepath.Join(root, "audit/1.jsonl"), "line\n")
	put(t, filepath.Join(root, "audit/key"), "PRIVATE-KEY-OF-THE-LOG")
	put(t, filepath.Join(root, "volumes/.new/data/half"), "HALF-MADE")
	return root
}

func made1(t *testing.T, root string) []byte {
	t.Helper()
	var out bytes.Buffer
	_, err := Create(context.Background(), root, &out, now, Options{})
	check(t, err)
	return out.Bytes()
}

// empty fails for a root in which a restore left something.
func empty(t *testing.T, root string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	check(t, err)
	for _, e := range entries {
		if e.Name() != "lock" {
			t.Errorf("%q is left", e.Name())
		}
	}
}

func refused(t *testing.T, code sbxerr.Code, archive []byte, says string) {
	t.Helper()
	root := t.TempDir()
	_, err := Restore(context.Background(), root, bytes.NewReader(archive), Options{})
	if sbxerr.Of(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("restored with %v, want %s and %q", err, code, says)
	}
	empty(t, root)
}

func TestRestoreGivesBackWhatWasThere(t *testing.T) {
	from, to := filled(t), t.TempDir()
	archive := made1(t, from)
	if len(archive) > 1<<20 {
		t.Errorf("holes were written: %d bytes", len(archive))
	}
	for _, absent := range []string{"PRIVATE-KEY-OF-THE-LOG", "HALF-MADE"} {
		if bytes.Contains(archive, []byte(absent)) {
			t.Errorf("it has %q", absent)
		}
	}
	_, err := Restore(context.Background(), to, bytes.NewReader(archive), Options{})
	check(t, err)
	check(t, errors.Join(os.Rename(from, from+".away"), os.Rename(to, from))) // the path is in it
	to = from
	if again := made1(t, moveAudit(t, to)); !bytes.Equal(again, archive) {
		t.Error("a backup of what was restored is another one")
	}
	var a, b unix.Stat_t
	data := filepath.Join(to, "volumes/1000+data/data")
	check(t, errors.Join(unix.Stat(filepath.Join(data, "a"), &a), unix.Stat(filepath.Join(data, "second"), &b)))
	if a.Ino != b.Ino || a.Mode&0o777 != 0o641 {
		t.Errorf("a is %+v, second is %+v", a, b)
	}
	check(t, unix.Stat(filepath.Join(to, "snapshots/7+snap/disk"), &a))
	if a.Size != 128<<20 || a.Blocks*512 > 1<<20 {
		t.Errorf("the disk has %d bytes, and takes %d", a.Size, a.Blocks*512)
	}
}

// moveAudit puts the restored log where a log is, so that a backup of it can be compared.
func moveAudit(t *testing.T, root string) string {
	t.Helper()
	check(t, os.Rename(filepath.Join(root, "audit.restored-20260102T030405Z"), filepath.Join(root, "audit")))
	return root
}

func TestDamagedBackupsAreRefused(t *testing.T) {
	archive := made1(t, filled(t))
	for at := 0; at < len(archive); at += 1 + len(archive)/97 {
		refused(t, sbxerr.Backup, archive[:at], "")
		changed := bytes.Clone(archive)
		changed[at] ^= 1
		refused(t, sbxerr.Backup, changed, "")
	}
	refused(t, sbxerr.Backup, archive[:len(archive)-1], "")
	refused(t, sbxerr.Backup, append(bytes.Clone(archive), 0), "was changed")
	refused(t, sbxerr.Backup, []byte(strings.Repeat("no tar ", 1000)), "cannot be read")
}

func TestOnlyWhatABackupHasIsRead(t *testing.T) {
	const volume = "volumes/1000+data"
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755} }
	link := func(kind byte, name, to string) tar.Header {
		return tar.Header{Typeflag: kind, Name: name, Linkname: to}
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	for name, c := range map[string]struct {
		version int
		items   []string
		entries []tar.Header
		says    string
	}{
		"version":  {2, nil, nil, "format version 2"},
		"item":     {1, []string{"volumes/../x"}, nil, "which no backup has"},
		"root":     {1, []string{"lock"}, nil, "which no backup has"},
		"absolute": {1, []string{volume}, []tar.Header{file("/etc/x")}, "which no backup has"},
		"up":       {1, []string{volume}, []tar.Header{dir(volume), file(volume + "/../x")}, "which no backup has"},
		"unnamed":  {1, []string{volume}, []tar.Header{dir("volumes/2+other")}, "which no backup has"},
		"through":  {1, []string{volume}, []tar.Header{dir(volume), link(tar.TypeSymlink, volume+"/l", "/"), file(volume + "/l/x")}, "is not in it"},
		"hard":     {1, []string{volume}, []tar.Header{dir(volume), link(tar.TypeLink, volume+"/l", "keys.json")}, "out of its item"},
		"device":   {1, []string{volume}, []tar.Header{dir(volume), {Typeflag: tar.TypeChar, Name: volume + "/d"}}, "is a device"},
		"block":    {1, []string{volume}, []tar.Header{dir(volume), {Typeflag: tar.TypeBlock, Name: volume + "/d"}}, "of the kind"},
		"twice":    {1, []string{volume}, []tar.Header{dir(volume), file(volume + "/f"), file(volume + "/f")}, "twice"},
		"overlay":  {1, []string{volume}, []tar.Header{{Typeflag: tar.TypeDir, Name: volume + "/", Mode: 0o700}, {Typeflag: tar.TypeReg, Name: volume + "/f", PAXRecords: map[string]string{xattrPrefix + "trusted.x": "00"}}}, "attribute"},
		"extent":   {1, []string{volume}, []tar.Header{dir(volume), {Typeflag: tar.TypeReg, Name: volume + "/f", PAXRecords: map[string]string{sparseSize: "9"}}}, "table"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := tar.NewWriter(&out)
			data, err := json.Marshal(Manifest{c.version, now, "/", c.items})
			check(t, err)
			check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: manifestName, Size: int64(len(data))}))
			_, err = w.Write(data)
			check(t, err)
			for _, h := range c.entries {
				h.Uid, h.Gid = os.Getuid(), os.Getgid()
				check(t, w.WriteHeader(&h))
			}
			check(t, w.Close())
			refused(t, sbxerr.Backup, out.Bytes(), c.says)
		})
	}
}

func TestNothingIsReplaced(t *testing.T) {
	archive := made1(t, filled(t))
	root := t.TempDir()
	put(t, filepath.Join(root, "keys.json"), "own")
	_, err := Restore(context.Background(), root, bytes.NewReader(archive), Options{})
	if sbxerr.Of(err) != sbxerr.RestoreExists || !strings.Contains(err.Error(), "keys.json") {
		t.Errorf("restored with %v", err)
	}
	if _, err := os.Lstat(filepath.Join(root, "volumes")); err == nil {
		t.Error("a refused restore left volumes")
	}
	put(t, filepath.Join(root, staged, "volumes/left"), "by one that was killed")
	_, err = Restore(context.Background(), root, bytes.NewReader(archive), Options{SkipExisting: true})
	check(t, err)
	own, err := os.ReadFile(filepath.Join(root, "keys.json"))
	check(t, err)
	if string(own) != "own" {
		t.Errorf("keys.json was replaced by %q", own)
	}
	if _, err := os.Lstat(filepath.Join(root, "snapshots/7+snap/disk")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, staged)); err == nil {
		t.Error("the staging directory is left")
	}
}

// TestImagesComeBackAtTheSamePath: with what overlayfs keeps in layers, and nowhere else.
func TestImagesComeBackAtTheSamePath(t *testing.T) {
	need.Root(t, "it makes devices and trusted attributes")
	root := filled(t)
	layer := filepath.Join(root, imagesPart, "snapshots/1/fs")
	put(t, filepath.Join(layer, "file"), "OF-AN-IMAGE")
	removed := filepath.Join(layer, "removed")
	check(t, unix.Mknod(removed, unix.S_IFCHR, 0))
	check(t, unix.Setxattr(layer, "trusted.overlay.opaque", []byte("y"), 0))
	archive := made1(t, root)

	_, err := Restore(context.Background(), t.TempDir(), bytes.NewReader(archive), Options{})
	if sbxerr.Of(err) != sbxerr.Backup || !strings.Contains(err.Error(), root) {
		t.Errorf("restored into another path with %v", err)
	}
	other := t.TempDir()
	_, err = Restore(context.Background(), other, bytes.NewReader(archive), Options{NoImages: true})
	check(t, err)
	if _, err := os.Lstat(filepath.Join(other, imagesPart)); err == nil {
		t.Error("images that were left out are there")
	}

	check(t, os.Rename(root, root+".away"))
	_, err = Restore(context.Background(), root, bytes.NewReader(archive), Options{})
	check(t, err)
	var s unix.Stat_t
	check(t, unix.Stat(removed, &s))
	opaque := make([]byte, 9)
	n, err := unix.Getxattr(layer, "trusted.overlay.opaque", opaque)
	check(t, err)
	if s.Mode&unix.S_IFMT != unix.S_IFCHR || s.Rdev != 0 || string(opaque[:n]) != "y" {
		t.Errorf("the removed file is %o %d, and the directory %q", s.Mode, s.Rdev, opaque[:n])
	}

	var without bytes.Buffer
	_, err = Create(context.Background(), root, &without, now, Options{NoImages: true})
	check(t, err)
	if bytes.Contains(without.Bytes(), []byte("OF-AN-IMAGE")) {
		t.Error("images were to be left out")
	}
}

func TestRootOfARunningDaemonIsRefused(t *testing.T) {
	root := filled(t)
	held, err := lock(root, "test")
	check(t, err)
	if _, err := Create(context.Background(), root, io.Discard, now, Options{}); sbxerr.Of(err) != sbxerr.Locked {
		t.Errorf("backed up with %v", err)
	}
	if _, err := Restore(context.Background(), root, strings.NewReader(""), Options{}); sbxerr.Of(err) != sbxerr.Locked {
		t.Errorf("restored with %v", err)
	}
	check(t, held.Close())
	made1(t, root)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestErrorsSayWhereTheyAre(t *testing.T) {
	root := filled(t)
	if _, err := Create(context.Background(), root, fullDisk{}, now, Options{}); sbxerr.Of(err) != sbxerr.Of(sbxerr.Wrap(sbxerr.ClientIO, "test", unix.ENOSPC)) {
		t.Errorf("without room for the backup: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Create(ctx, root, io.Discard, now, Options{}); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("backed up with %v", err)
	}
	to := t.TempDir()
	if _, err := Restore(ctx, to, bytes.NewReader(made1(t, root)), Options{}); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("restored with %v", err)
	}
	empty(t, to)
}
