package ctrd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestVersionIsAskedOnce: of each program, be it another file or the same one
// with another content.
func TestVersionIsAskedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runc")
	write := func(to, content string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(to, []byte(content), 0o755), os.Chtimes(to, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Unix(1000, 0)
	asked := 0
	var a askedVersion
	want := func(what, version string, times int) {
		t.Helper()
		for range 3 {
			got, err := a.of(path, func() (string, error) {
				asked++
				b, err := os.ReadFile(path)
				return string(b), err
			})
			if err != nil || got != version || asked != times {
				t.Errorf("%s: %q, %v, asked %d times; want %q, %d", what, got, err, asked, version, times)
			}
		}
	}
	if _, err := a.of(path, func() (string, error) { return "1", nil }); !errors.Is(err, sbxerr.Binary) {
		t.Errorf("of a program that is not there: %v", err)
	}
	write(path, "1.0", began)
	if _, err := a.of(path, func() (string, error) { return "", os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("of a program that does not say: %v", err)
	}
	want("the first", "1.0", 1)
	write(path, "1.1", began.Add(time.Nanosecond))
	want("written anew", "1.1", 2)
	write(path+".new", "1.2", began.Add(time.Nanosecond))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	want("another file", "1.2", 3)
	write(path, "1.20", began.Add(time.Nanosecond))
	want("longer", "1.20", 4)
}
