package unified

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/patch"
)

// maxTime bounds how long files are compared. A file that is begun with is finished.
const maxTime = 10 * time.Second

// errTooLarge is a file of which the content is not shown.
var errTooLarge = errors.New("too large")

// Serve sends a patch of the files of a request, which it asks the daemon for, and what it left out.
func Serve(c *imageproc.Conn, request json.RawMessage, files []*os.File) error {
	var r patch.Request
	if err := json.Unmarshal(request, &r); err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("%d files where one is due", len(files))
	}
	m := maker{asker: imageproc.NewAsker(files[0]), room: patch.MaxPatch, until: time.Now().Add(maxTime)}
	if err := c.SendStream(func(w io.Writer) error { return m.all(w, r.Files) }); err != nil {
		return err
	}
	return c.Send(patch.MessageLeft, m.left)
}

type maker struct {
	asker *imageproc.Asker
	room  int // bytes that the patch may still take
	until time.Time
	left  []patch.Left
}

func (m *maker) all(w io.Writer, files []patch.File) error {
	for i, f := range files {
		text, reason := m.one(i, f)
		if len(text) > m.room {
			text, reason = "", patch.TooLarge
		}
		if reason != 0 {
			m.left = append(m.left, patch.Left{File: i, Reason: reason})
		}
		m.room -= len(text)
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func (m *maker) one(i int, f patch.File) (text string, left patch.Reason) {
	if time.Now().After(m.until) {
		return "", patch.TooSlow
	}
	var c content
	var err error
	if c.old, err = m.read(i, f, f.Old, false); err == nil {
		c.new, err = m.read(i, f, f.New, true)
	}
	if errors.Is(err, errTooLarge) {
		return "", patch.TooLarge
	}
	if err != nil {
		return "", patch.Unreadable
	}
	text, binary, err := write(f, c)
	if err != nil {
		return "", patch.Unreadable
	}
	if binary {
		left = patch.Binary
	}
	return text, left
}

// read returns the content of a side: nothing of one that is not there, or is not looked at.
func (m *maker) read(i int, f patch.File, s *patch.Side, isNew bool) ([]byte, error) {
	if s == nil || f.Same {
		return nil, nil
	}
	if s.Mode == patch.ModeLink {
		return s.Link, nil
	}
	file, err := m.asker.Ask(context.Background(), patch.Ask{File: i, New: isNew})
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, patch.MaxFile+1))
	if err == nil && len(data) > patch.MaxFile {
		err = errTooLarge
	}
	return data, errors.Join(err, file.Close())
}
