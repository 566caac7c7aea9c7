package specflags

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// inputDir is the directory of input files in a sandbox.
const inputDir = "/dev/shm/caisson-input"

// maxInput is the most that the daemon takes of one input file, in bytes.
const maxInput = 1 << 20

// inputs reads the files of --input.
func inputs(p *cli.Parser, list []string) (out []*caissonv1.Input) {
	for _, text := range list {
		f, err := readInput(text)
		if err != nil {
			p.Refuse(err)
			continue
		}
		out = append(out, f)
	}
	return out
}

func readInput(text string) (*caissonv1.Input, error) {
	file, rest, _ := strings.Cut(text, ":")
	at, mode, hasMode := strings.Cut(rest, ":")
	if at == "" {
		at = filepath.Base(file)
	}
	f := &caissonv1.Input{Path: at}
	if hasMode {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil {
			return nil, cli.Usage("--input %q: the mode %q is not octal, such as 0400", sbxerr.Clip(text), sbxerr.Clip(mode))
		}
		f.Mode = proto.Uint32(uint32(n))
	}
	if file == "" {
		return nil, cli.Usage("--input %q: write FILE, FILE:PATH or FILE:PATH:MODE", sbxerr.Clip(text))
	}
	var err error
	if f.Data, err = readSmall(file); err != nil {
		return nil, sbxerr.Wrap(sbxerr.ClientIO, "caisson.input", fmt.Errorf("--input: %w", err))
	}
	if len(f.Data) > maxInput {
		return nil, cli.Usage("--input: %s has more than %d bytes: use caisson cp, or a workspace", sbxerr.Clip(file), maxInput)
	}
	return f, nil
}

// readSmall reads path: one byte more than maxInput at most.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxInput+1))
}
