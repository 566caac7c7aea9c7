package images

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// hostStores are the image stores of a host, by the names that skopeo(1) has for them. Each
// has a program that writes an image of it to standard output, with the rights of its caller.
var hostStores = []struct {
	transport string
	save      []string
}{
	{"docker-daemon:", []string{"docker", "save", "--"}},
	{"containers-storage:", []string{"podman", "save", "--quiet", "--"}},
	{"containerd:", []string{"ctr", "images", "export", "-"}}, // CONTAINERD_ADDRESS and CONTAINERD_NAMESPACE say where
}

// saveCommand is the program that writes the image which name is to be found by, and its
// arguments. Nil: name is no image of a store.
func saveCommand(name string) ([]string, error) {
	for _, s := range hostStores {
		image, ok := strings.CutPrefix(name, s.transport)
		if !ok {
			continue
		}
		if image == "" || strings.HasPrefix(image, "-") {
			return nil, cli.Usage("%s: give the name of an image after the colon, such as %spython:3.12", name, s.transport)
		}
		return append(s.save[:len(s.save):len(s.save)], image), nil
	}
	return nil, nil
}

// savedImage is an archive that a program writes. It ends with an error when the program
// fails: what it wrote until then is no image.
type savedImage struct {
	io.Reader
	stop   context.CancelFunc
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func saveImage(ctx context.Context, args []string) (*savedImage, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &savedImage{stop: stop, cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, sbxerr.WithRemedy(sbxerr.ClientIO, "caisson.import", fmt.Errorf("start %s: %w", args[0], err),
			"install "+args[0]+", or save the image to a file elsewhere and import that")
	}
	s.Reader = out
	return s, nil
}

func (s *savedImage) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	if err := s.cmd.Wait(); err != nil {
		return 0, sbxerr.WithRemedy(sbxerr.ClientIO, "caisson.import", fmt.Errorf("%s: %s", strings.Join(s.cmd.Args, " "), cmp.Or(lastLine(s.stderr.String()), err.Error())),
			"check with "+s.cmd.Args[0]+" that the image is there, and that you may use "+s.cmd.Args[0])
	}
	return 0, io.EOF
}

// Close ends the program, if it runs.
func (s *savedImage) Close() error {
	s.stop()
	_ = s.cmd.Wait() // its error is that of the last Read
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return cli.Printable(lines[len(lines)-1])
}
