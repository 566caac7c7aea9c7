package specflags

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const mountExample = "write type=bind,src=PATH,dst=PATH[,ro], type=volume,src=NAME,dst=PATH[,ro], type=snapshot,src=NAME,dst=PATH or type=tmpfs,dst=PATH[,size=SIZE]"

// mounts reads the values of --mount, which has Docker's syntax: a line of CSV with KEY=VALUE.
func mounts(p *cli.Parser, list []string) (out []*caissonv1.Mount) {
	for _, text := range list {
		m, err := parseMount(text)
		if err != nil {
			p.Refuse(mountError(text, err))
			continue
		}
		out = append(out, m)
	}
	return out
}

// mountError shows the form of a mount where err has no remedy of its own.
func mountError(text string, err error) error {
	named := fmt.Errorf("--mount %q: %w", text, err)
	if code := sbxerr.Of(err); code != sbxerr.Unknown {
		return sbxerr.Wrap(code, "caisson.mount", named)
	}
	return sbxerr.WithRemedy(sbxerr.APIUsage, "caisson.mount", named, mountExample)
}

func parseMount(text string) (*caissonv1.Mount, error) {
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, errors.New("it is no line of KEY=VALUE,KEY=VALUE")
	}
	m := &caissonv1.Mount{}
	seen := map[string]bool{}
	for _, field := range fields {
		key, value, given := strings.Cut(strings.TrimSpace(field), "=")
		name := mountKeys[strings.ToLower(key)]
		switch {
		case name == "":
			return nil, unknownMountKey(key)
		case seen[name]:
			return nil, fmt.Errorf("%s is given twice", name)
		case !given && name != "readonly":
			return nil, fmt.Errorf("%s has no value", name)
		}
		seen[name] = true
		if err := setMount(m, name, value, given); err != nil {
			return nil, err
		}
	}
	return m, checkMount(m)
}

// mountKeys are the names of the keys, and their other names.
var mountKeys = map[string]string{
	"type": "type", "source": "source", "src": "source", "target": "target", "destination": "target", "dst": "target",
	"readonly": "readonly", "ro": "readonly", "tmpfs-size": "size", "size": "size", "cow": "cow",
}

func unknownMountKey(key string) error {
	if strings.HasPrefix(key, "bind-") || strings.HasPrefix(key, "volume-") || key == "tmpfs-mode" || key == "consistency" {
		return fmt.Errorf("%s cannot be set: a bind is private and not recursive, a tmpfs has mode 1777", key)
	}
	if near := cli.Nearest(key, slices.Sorted(maps.Keys(mountKeys))); near != "" {
		return fmt.Errorf("there is no key %q; did you mean %q?", key, near)
	}
	return fmt.Errorf("there is no key %q", key)
}

func setMount(m *caissonv1.Mount, name, value string, given bool) (err error) {
	switch name {
	case "type":
		m.Type = value
	case "source":
		m.Source = value
	case "target":
		m.Target = value
	case "readonly":
		m.ReadOnly = true
		if given {
			m.ReadOnly, err = strconv.ParseBool(value)
		}
	case "cow":
		m.Cow = true
		if given {
			m.Cow, err = strconv.ParseBool(value)
		}
	case "size":
		var n int64
		n, err = units.ParseSize(value)
		m.SizeBytes = &n
	}
	return err
}

// checkMount refuses a type that is none, and resolves a source where it was typed.
func checkMount(m *caissonv1.Mount) error {
	switch m.Type {
	case "bind", "volume", "snapshot", "tmpfs":
	case "":
		return errors.New("the type is missing")
	default:
		return fmt.Errorf("type %q is none of bind, volume, snapshot, tmpfs", m.Type)
	}
	if m.Target == "" {
		return errors.New("the target is missing")
	}
	if m.Type == "tmpfs" {
		return nil
	}
	if m.Source == "" {
		return errors.New("the source is missing")
	}
	if m.Type != "bind" {
		return nil
	}
	source, err := filepath.Abs(m.Source)
	if err == nil {
		_, err = os.Stat(source)
	}
	m.Source = source
	return sbxerr.WithRemedy(sbxerr.Workspace, "caisson.mount", err, dirRemedy(m.Source, err))
}

// MountText is m as --mount takes it.
func MountText(m *caissonv1.Mount) string {
	fields := []string{"type=" + m.GetType(), "target=" + m.GetTarget()}
	if m.GetSource() != "" {
		fields = append(fields, "source="+m.GetSource())
	}
	if m.GetReadOnly() {
		fields = append(fields, "readonly")
	}
	if m.SizeBytes != nil {
		fields = append(fields, "size="+strconv.FormatInt(m.GetSizeBytes(), 10))
	}
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(fields) // a Builder takes all
	w.Flush()
	return strings.TrimSuffix(line.String(), "\n")
}
