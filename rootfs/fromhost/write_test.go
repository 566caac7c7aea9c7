package fromhost

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// memory is a sink that keeps everything; at calls hook before each entry.
type memory struct {
	headers map[string]*tar.Header
	content map[string]string
	order   []string
	hook    func(name string)
	fail    error
}

func newMemory() *memory {
	return &memory{headers: map[string]*tar.Header{}, content: map[string]string{}}
}

func (m *memory) Entry(hdr *tar.Header, content io.Reader) error {
	if m.fail != nil {
		return m.fail
	}
	if m.hook != nil {
		m.hook(hdr.Name)
	}
	m.headers[hdr.Name] = hdr
	m.order = append(m.order, hdr.Name)
	if content == nil {
		return nil
	}
	data, err := io.ReadAll(content)
	if err == nil && int64(len(data)) != hdr.Size {
		err = errors.New("wrong size")
	}
	m.content[hdr.Name] = string(data)
	return err
}

func toolPlan(t *testing.T) (root string, p *Plan) {
	t.Helper()
	root = fakeRoot(t, map[string]node{
		"/bin/sh": prog(elfSpec{}.build()), "/opt/a/file": file("0123456789"), "/opt/a/hard": {hard: "/opt/a/file"},
		"/opt/a/link": link("file"), "/opt/a/run": prog("run"), "/opt/a/dir": {}, "/opt/secret": {text: "secret", mode: 0o600},
	})
	p, err := Collect(t.Context(), Host{Root: root}, Request{Paths: []string{"/opt/a"}, Minimal: true, Limits: ample})
	must(t, err)
	return root, p
}

func TestWrite(t *testing.T) {
	_, p := toolPlan(t)
	m := newMemory()
	done, err := Write(t.Context(), p, m)
	must(t, err)
	if done.Entries != int64(len(p.Entries)) || done.Bytes != p.Bytes {
		t.Errorf("done %+v, planned %s", done, p.Summary())
	}
	if m.content["opt/a/file"] != "0123456789" || !strings.HasPrefix(m.content["etc/passwd"], "root:x:0:0:") || m.content["opt/a/hard"] != "" {
		t.Errorf("content: %q", m.content)
	}
	want := map[string]tar.Header{
		"opt/a/":     {Typeflag: tar.TypeDir, Mode: 0o755},
		"opt/a/file": {Typeflag: tar.TypeReg, Mode: 0o644, Size: 10},
		"opt/a/hard": {Typeflag: tar.TypeLink, Mode: 0o644, Linkname: "opt/a/file"},
		"opt/a/link": {Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "file"},
		"opt/a/run":  {Typeflag: tar.TypeReg, Mode: 0o755, Size: 3},
	}
	for name, w := range want {
		h := m.headers[name]
		if h == nil || h.Typeflag != w.Typeflag || h.Mode != w.Mode || h.Size != w.Size || h.Linkname != w.Linkname || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if got := m.headers["opt/a/file"].ModTime; !got.Equal(fixedTime) {
		t.Errorf("time %v", got)
	}
	seen := map[string]bool{"": true}
	for _, name := range m.order {
		parent := filepath.Dir(strings.TrimSuffix(name, "/"))
		if parent != "." && !seen[parent+"/"] {
			t.Errorf("%s comes before its directory", name)
		}
		seen[name] = true
	}
}

// What happens to the host between the plan and the copy, or during it, never
// puts something else into the image.
func TestWriteNoticesChanges(t *testing.T) {
	const name = "/opt/a/file"
	tests := map[string]struct {
		during bool // while the file is copied, not before
		change func(p string) error
		want   string
	}{
		"now a link":           {false, func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/opt/secret", p)) }, "is no directory"},
		"now a directory":      {false, func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "is no directory"},
		"now for its owner":    {false, func(p string) error { return os.Chmod(p, 0o600) }, "not readable by everybody"},
		"directory now closed": {false, func(p string) error { return os.Chmod(filepath.Dir(p), 0o700) }, "not readable by everybody"},
		"gone":                 {false, os.Remove, "does not exist"},
		"cut short":            {true, func(p string) error { return os.Truncate(p, 3) }, "changed while it was copied"},
		"grown": {true, func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("more")
			return errors.Join(err, f.Close())
		}, "changed while it was copied"},
		"grown before": {false, func(p string) error { return os.WriteFile(p, []byte("another content"), 0o644) }, ""},
	}
	for what, tc := range tests {
		t.Run(what, func(t *testing.T) {
			root, p := toolPlan(t)
			m := newMemory()
			change := func() { must(t, tc.change(filepath.Join(root, name))) }
			if tc.during {
				m.hook = func(n string) {
					if n == name[1:] {
						change()
					}
				}
			} else {
				change()
			}
			before := openFDs(t)
			_, err := Write(t.Context(), p, m)
			if after := openFDs(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			if tc.want == "" {
				must(t, err)
				if m.content[name[1:]] != "another content" {
					t.Errorf("content %q", m.content[name[1:]])
				}
				return
			}
			if sbxerr.Of(err) != sbxerr.FromHost || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestWriteLimits(t *testing.T) {
	root, p := toolPlan(t)
	must(t, os.WriteFile(filepath.Join(root, "/opt/a/file"), make([]byte, 1000), 0o644)) // larger than planned
	p.limits.Bytes = p.Bytes
	if _, err := Write(t.Context(), p, newMemory()); sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("bytes: %v", err)
	}
	p.limits = Limits{Bytes: 1 << 30, Entries: 3}
	if done, err := Write(t.Context(), p, newMemory()); sbxerr.Of(err) != sbxerr.ImageTooBig || done.Entries != 3 {
		t.Errorf("entries: %v after %d", err, done.Entries)
	}
	p.limits = Limits{}
	if _, err := Write(t.Context(), p, newMemory()); sbxerr.Of(err) != sbxerr.ImageTooBig {
		t.Errorf("no limits mean none: %v", err)
	}
}

func TestWriteFails(t *testing.T) {
	root, p := toolPlan(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, p, newMemory()); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	m := newMemory()
	m.fail = sbxerr.New(sbxerr.ImageContent, "image.filter", "no")
	if _, err := Write(t.Context(), p, m); sbxerr.Of(err) != sbxerr.ImageContent {
		t.Errorf("the sink's own code is lost: %v", err)
	}
	m.fail = io.ErrShortWrite
	if _, err := Write(t.Context(), p, m); sbxerr.Of(err) != sbxerr.FromHost || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the sink's error is lost: %v", err)
	}
	p.Entries[0].Kind = "socket"
	if _, err := Write(t.Context(), p, newMemory()); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("unknown kind: %v", err)
	}
	must(t, os.RemoveAll(root))
	if _, err := Write(t.Context(), p, newMemory()); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("without a root: %v", err)
	}
}

func TestCheckCertificates(t *testing.T) {
	ca, key := certificate(t, true)
	leaf, _ := certificate(t, false)
	tests := []struct {
		name, data string
		single, ok bool
	}{
		{"authority", ca, true, true},
		{"bundle", "# comment\n" + ca + leaf, false, true},
		{"a host's own", leaf, true, false},
		{"key", key, false, false},
		{"certificate and key", ca + key, false, false},
		{"encrypted key", ca + "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", false, false},
		{"request", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", false, false},
		{"broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", true, false},
		{"nothing", "", false, false},
	}
	for _, tc := range tests {
		if err := checkCertificates([]byte(tc.data), tc.single); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
