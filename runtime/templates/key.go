package templates

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/rootfs/layertar"
)

// format is the version of what a set-up makes of equal inputs.
const format = 1

// Inputs is all that goes into a template.
type Inputs struct {
	Base    string // digest of the image
	Copy    []File
	Run     []string
	Seccomp string // of the sandboxes in which Run happens
	Env     []string
	Policy  policy.Spec
	Mode    string // of their network
}

// File is what is copied in.
type File struct {
	Content string // digest of content, modes and names
	To      string
}

// Key names the template that the inputs make.
func (i Inputs) Key() string {
	data, err := json.Marshal([]any{format, i})
	if err != nil {
		panic(err) // plain data
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// lookEvery is how long files of the host count as unchanged. Within it no request looks.
const lookEvery = time.Second

// contents remembers digests of files for as long as their names, sizes, modes and times stay.
type contents struct {
	mu    sync.Mutex
	known map[string]content // by path
}

type content struct {
	stamp, digest string
	looked        time.Time
}

// digest tells what a file or directory of the host holds.
func (c *contents) digest(ctx context.Context, path string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.known[path]
	if have.digest != "" && time.Since(have.looked) < lookEvery {
		return have.digest, nil
	}
	now := content{looked: time.Now()}
	at, err := filepath.EvalSymlinks(path)
	if err == nil {
		now.stamp, err = stampOf(at)
	}
	if err != nil {
		return "", missing(path, err)
	}
	if now.digest = have.digest; now.stamp != have.stamp || have.digest == "" {
		if now.digest, err = digestOf(ctx, at); err != nil {
			return "", missing(path, err)
		}
	}
	if c.known == nil {
		c.known = map[string]content{}
	}
	c.known[path] = now
	return now.digest, nil
}

// forget has the next look read all.
func (c *contents) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

func missing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("setup.copy: there is no %q", path)
	} else {
		err = fmt.Errorf("setup.copy: read %q: %w", path, err)
	}
	return sbxerr.WithRemedy(sbxerr.TemplateFailed, "templates.key", err, "have root put the file there, or correct setup.copy of the profile")
}

func digestOf(ctx context.Context, path string) (string, error) {
	root, err := os.OpenRoot("/")
	if err != nil {
		return "", err
	}
	defer root.Close() // it was only read
	d, err := layertar.DigestOf(ctx, root, strings.TrimPrefix(path, "/"))
	return d.String(), err
}

// stampOf changes with any change of the files at path that the kernel sees.
func stampOf(path string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(name, &st)
		}
		fmt.Fprintln(sum, name, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim, st.Ctim)
		return err
	})
	return string(sum.Sum(nil)), err
}
