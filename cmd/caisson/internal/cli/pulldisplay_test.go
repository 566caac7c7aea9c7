package cli_test

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/server/servertest"
)

// shownOn keeps what is shown on a terminal.
type shownOn struct {
	mu   sync.Mutex
	text strings.Builder
}

func readTerminal(master *os.File) *shownOn {
	s := &shownOn{}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *shownOn) await(t *testing.T, what string, good func(text string) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // nothing announces what a terminal shows
		s.mu.Lock()
		text := s.text.String()
		s.mu.Unlock()
		if good(text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q", what, text)
		}
	}
}

// A layer whose bytes are all here is being unpacked, until the image is there.
func TestPullShowsUnpacking(t *testing.T) {
	states := make(chan string)
	f := &servertest.Fake{OnPull: func(_ images.PullRequest, progress func(images.PullProgress)) (images.Imported, error) {
		for state := range states {
			received := int64(1 << 20)
			if state == "fetching" {
				received /= 2
			}
			progress(images.PullProgress{Layers: []images.LayerProgress{{Digest: "sha256:0123456789abcdef", Size: 1 << 20, Received: received, State: state}}})
		}
		return images.Imported{Image: images.Image{Name: "r.example/a", Digest: "sha256:aa"}}, nil
	}}
	master, slave := openPTY(t)
	resize(t, master, 24, 120)
	screen := readTerminal(master)
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	a := cli.NewApp(whole, nil, io.Discard, slave)
	code := make(chan int, 1)
	go func() { code <- a.Run(t.Context(), []string{"image", "pull", "r.example/a"}) }()
	states <- "fetching"
	screen.await(t, "half of it", func(text string) bool {
		return strings.Contains(text, "512.0 KiB / 1.0 MiB") && !strings.Contains(text, "unpacking")
	})
	for _, state := range []string{"fetched", "stored"} {
		states <- state
		screen.await(t, state, func(text string) bool {
			return strings.HasSuffix(strings.TrimSpace(text), "1.0 MiB / 1.0 MiB unpacking")
		})
	}
	close(states)
	if got := await(t, "the end", code); got != 0 {
		t.Errorf("code %d", got)
	}
	screen.await(t, "the image", func(text string) bool { return strings.HasSuffix(strings.TrimSpace(text), "1.0 MiB / 1.0 MiB") })
}
