package fault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// Input reaches its command exactly once, also where the daemon is killed at any moment
// while it sends (F01).
func TestKilledWhileItSendsInput(t *testing.T) {
	const (
		kills = 100
		size  = 256 << 20
	)
	d := harness.Start(t)
	d.Run(t, "create", "--name", "reads")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sent := sha256.New()
	random := rand.NewChaCha8([32]byte{1})
	given := make(chan io.Reader, 1)
	stdin := io.TeeReader(&parts{list: given}, sent)
	client := api.New(api.Options{Socket: d.Socket, Reconnect: time.Minute})
	var out bytes.Buffer
	done := make(chan error, 1)
	started := make(chan struct{})
	var once sync.Once
	go func() {
		rio := api.IO{Stdin: stdin, Stdout: &out, Started: func(*caissonv1.Exec) { once.Do(func() { close(started) }) }}
		_, err := client.Exec(ctx, "reads", &caissonv1.ExecSpec{Args: []string{"sha256sum"}}, rio)
		done <- err
	}()
	for kill := range kills {
		select {
		case given <- io.LimitReader(random, size/kills+1):
		case err := <-done:
			t.Fatalf("the call ended after %d kills: %v", kill, err)
		}
		<-started // one that is killed before cannot be repeated
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		d.Kill(t)
		d.Launch(t)
	}
	close(given)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Fields(out.String())[0], hex.EncodeToString(sent.Sum(nil)); got != want {
		t.Errorf("the command read bytes of sum %s, want %s", got, want)
	}
	d.Run(t, "rm", "--force", "reads")
	d.AwaitNoSandbox(t)
}

// parts reads one reader after another, each as soon as it is given.
type parts struct {
	list <-chan io.Reader
	now  io.Reader
}

func (p *parts) Read(b []byte) (int, error) {
	for {
		if p.now == nil {
			next, ok := <-p.list
			if !ok {
				return 0, io.EOF
			}
			p.now = next
		}
		n, err := p.now.Read(b)
		if err == io.EOF {
			p.now, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
