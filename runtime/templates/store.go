package templates

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// attempt is the last build of a profile's template, as it is kept on the disk.
type attempt struct {
	Key   string
	Ended time.Time
	Took  time.Duration
	Error string `json:",omitempty"` // why it failed; empty: it did not
	Log   string
}

// maxAttempt bounds the file of an attempt: a log can grow sixfold as JSON.
const maxAttempt = 8 * maxLog

func (s *Service) file(profile string) string { return filepath.Join(s.dir, profile+suffix) }

const suffix = ".json"

// keep replaces the last attempt of a profile.
func (s *Service) keep(profile string, a attempt) error {
	data, err := json.Marshal(a)
	if err == nil {
		err = owndir.WriteFile(s.file(profile), data)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "templates.keep", err)
}

// lastAttempt returns the last attempt of a profile, empty where there was none.
func (s *Service) lastAttempt(profile string) (a attempt, err error) {
	data, err := owndir.ReadFile(s.file(profile), maxAttempt)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	return a, sbxerr.Wrap(sbxerr.StateDir, "templates.keep", err)
}

// prune forgets the attempts of profiles that have no set-up.
func (s *Service) prune(has func(profile string) bool) error {
	list, err := os.ReadDir(s.dir)
	for _, e := range list {
		if profile, ok := strings.CutSuffix(e.Name(), suffix); !ok || !has(profile) {
			err = errors.Join(err, owndir.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return sbxerr.Wrap(sbxerr.StateDir, "templates.keep", err)
}
