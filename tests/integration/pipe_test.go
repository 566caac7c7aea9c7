package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// pipeSize is what goes through a pipe in these tests, in bytes.
const pipeSize = 1 << 30

// stream is pipeSize bytes, the same for the same seed, and their sum.
func stream(seed byte) (io.Reader, hash.Hash) {
	sum := sha256.New()
	return io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{seed}), pipeSize), sum), sum
}

// throttle reads in fits and starts: for a while as fast as it can, then not at all.
type throttle struct {
	hash.Hash
	n, stop int64
}

func (s *throttle) Write(p []byte) (int, error) {
	if s.n += int64(len(p)); s.n > s.stop {
		s.stop += pipeSize / 8
		time.Sleep(200 * time.Millisecond) // the reader stops
	}
	return s.Hash.Write(p)
}

// A gigabyte goes through run and exec, in both directions, without a byte lost, to a
// caller that stops reading now and then too.
func TestPipeIsExact(t *testing.T) {
	box(t, daemon, "pipe")
	for name, args := range map[string][]string{
		"run":  {"run", "-i", "--", "cat"},
		"exec": {"exec", "-i", "pipe", "--", "cat"},
	} {
		t.Run(name, func(t *testing.T) {
			in, sent := stream(1)
			got := &throttle{Hash: sha256.New()}
			cmd := daemon.Command(t.Context(), args...)
			var stderr strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = in, got, &stderr
			if err := cmd.Run(); err != nil || stderr.Len() > 0 {
				t.Errorf("%v, %q", err, &stderr)
			}
			compareSums(t, got.n, got, sent)
		})
	}
	t.Run("attach", func(t *testing.T) { // to a command that was told to go on when somebody is there
		exec := daemon.Run(t, "exec", "-d", "pipe", "--", "sh", "-c", fmt.Sprintf("sleep 1; head -c %d /dev/zero", pipeSize)).Stdout
		got := &throttle{Hash: sha256.New()}
		cmd := daemon.Command(t.Context(), "attach", "pipe", strings.TrimSpace(exec))
		cmd.Stdout = got
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		sum := sha256.New()
		if _, err := io.CopyN(sum, zeros{}, pipeSize); err != nil {
			t.Fatal(err)
		}
		compareSums(t, got.n, got, sum)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func compareSums(t *testing.T, n int64, got, want hash.Hash) {
	t.Helper()
	if g, w := hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(want.Sum(nil)); n != pipeSize || g != w {
		t.Errorf("%d bytes with sum %s came back, want %d with %s", n, g, pipeSize, w)
	}
}

// The daemon is killed in the middle, again and again, while a gigabyte comes out of a
// command that waits for its reader.
func TestPipeOverKills(t *testing.T) {
	d := harness.StartWith(t, "")
	dir := t.TempDir()
	in, sent := stream(2)
	f, err := os.Create(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, in); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	box(t, d, "pipe", "--workspace", dir+":ro")
	c := api.New(api.Options{Socket: d.Socket, Reconnect: time.Minute})
	defer c.Close()
	got := &throttle{Hash: sha256.New()}
	done := make(chan error, 1)
	go func() {
		limit := int64(1000) // of what is kept: less than the reader is ever behind
		spec := &caissonv1.ExecSpec{Args: []string{"cat", "/workspace/data"}, OutputLimitBytes: &limit}
		r, err := c.Exec(t.Context(), "pipe", spec, api.IO{Stdout: got})
		if err == nil && (r.ExitCode != 0 || !r.Truncated) {
			err = fmt.Errorf("it ended as %+v", r)
		}
		done <- err
	}()
	for kills := 0; ; kills++ {
		select {
		case err := <-done:
			if err != nil || kills < 2 {
				t.Fatalf("after %d kills: %v", kills, err)
			}
			compareSums(t, got.n, got, sent)
			return
		case <-time.After(400 * time.Millisecond):
			if kills < 5 {
				d.Kill(t)
				d.Launch(t)
			}
		}
	}
}
