package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// here is a server of this host, and what connects to it for a registry that is there.
func here(t *testing.T) (*dialer, string) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return newDialer([]imagework.Server{{Scheme: "http", Host: strings.TrimPrefix(server.URL, "http://")}}, nil, time.Second), server.URL
}

// A process that is not what it was connects to no more than a registry could lead to.
func TestDialIsJudged(t *testing.T) {
	d, server := here(t)
	f, err := d.dial(t.Context(), server) // the control
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if "http://"+conn.RemoteAddr().String() != server {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	for to, says := range map[string]string{
		"http://192.0.2.1":        "http://192.0.2.1 is not HTTPS",
		"ftp://127.0.0.1":         "is not HTTPS",
		"//192.0.2.1":             "is not HTTPS",
		"https://169.254.169.254": "whose address 169.254.169.254 is",
		"https://0.0.0.0:1":       "whose address 0.0.0.0 is",
		server + "/v2/":           "is no server",
		"https://a@192.0.2.1":     "is no server",
		"https://":                "is no server",
		"unix:///run/x":           "is no server",
	} {
		f, err := d.dial(t.Context(), to)
		if f != nil || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), string(sbxerr.PullRefused)) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// The connections of one pull are counted.
func TestDialsAreBounded(t *testing.T) {
	d, server := here(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	made := 0
	for {
		conn, err := d.dial(ctx, server)
		if err != nil {
			break
		}
		conn.Close()
		made++
	}
	if made < fastDials || made > fastDials+70 { // and then one each 50 ms
		t.Errorf("%d connections", made)
	}
	d.dials = maxDials
	if _, err := d.dial(t.Context(), server); sbxerr.Of(err) != sbxerr.PullRefused {
		t.Errorf("above all bounds: %v", err)
	}
}

// A process gets the files of what it is to fetch, and what it writes more is noticed, also in a
// layer that was stored.
func TestSpoolIsWatched(t *testing.T) {
	d := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 10}
	p, err := spool{dir: t.TempDir(), repo: "a.example/a"}.open(d)
	if err != nil {
		t.Fatal(err)
	}
	defer p.file.Close()
	s := &Session{wanted: map[int]*want{1: {part: p}}}
	give := func(id int) (any, error) {
		request, err := json.Marshal(imagework.Ask{File: id})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.give(t.Context(), request)
		if err == nil {
			_, err = f.WriteAt(make([]byte, 10), 0)
			defer f.Close()
		}
		return f, err
	}
	if _, err := give(2); err == nil {
		t.Error("it got a file of nothing")
	}
	if _, err := give(1); err != nil || s.Check() != nil {
		t.Errorf("%v, %v", err, s.Check())
	}
	if _, err := p.file.WriteAt([]byte("x"), 10); err != nil || sbxerr.Of(s.Check()) != sbxerr.ImageProcess {
		t.Errorf("11 bytes of 10: %v, %v", err, s.Check())
	}
	if err := p.drop(); err != nil || s.Check() != nil {
		t.Errorf("%v, %v", err, s.Check())
	}
	if _, err := p.file.WriteAt([]byte("x"), 0); err != nil || s.Check() == nil {
		t.Errorf("after it was stored: %v", err)
	}
}

// A process gets no part of a layer that came from another repository: it would show that to its
// registry.
func TestPartsAreOfOneRepository(t *testing.T) {
	dir := t.TempDir()
	d := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 10}
	for _, c := range []struct {
		repo string
		have int64
	}{{"a.example/a", 0}, {"a.example/a", 5}, {"a.example/b", 0}} {
		p, err := spool{dir: dir, repo: c.repo}.open(d)
		if err != nil {
			t.Fatal(err)
		}
		if have := p.length(); have != c.have {
			t.Errorf("%s: %d bytes", c.repo, have)
		}
		if _, err := p.file.WriteAt([]byte("12345"), 0); err != nil {
			t.Fatal(err)
		}
		p.file.Close()
	}
}

// A process is told the credentials of its own registry, and they are not printed.
func TestCredentialsOfOne(t *testing.T) {
	c := &Client{files: map[string]Credentials{"other.example": {Password: "of another"}}}
	servers, _, err := c.servers(t.Context(), Reference{Host: "a.example"}, Caller{Root: true, Credentials: Credentials{Username: "ann", Password: "secret"}})
	if err != nil || len(servers) != 1 || servers[0].User != "ann" || servers[0].Secret != "secret" {
		t.Fatalf("%d servers: %v", len(servers), err)
	}
	if data, err := json.Marshal(servers); err != nil || strings.Contains(string(data), "another") {
		t.Errorf("%v", err)
	}
	if r := (imagework.Registry{Servers: servers}); strings.Contains(fmt.Sprintf("%v %+v", r, r), "secret") {
		t.Error("they are printed")
	}
}

// A process cannot say that a name with a digest leads to another image.
func TestTargetIsChecked(t *testing.T) {
	asked, other := digest.FromString("a"), digest.FromString("b")
	for _, c := range []struct {
		pinned, target digest.Digest
		ok             bool
	}{{"", asked, true}, {asked, asked, true}, {asked, other, false}, {"", "sha256:1", false}, {"", "", false}} {
		s := &Session{ref: Reference{Digest: c.pinned}, Target: ocispec.Descriptor{Digest: c.target}}
		if err := s.checkTarget(); (err == nil) != c.ok {
			t.Errorf("%q leads to %q: %v", c.pinned, c.target, err)
		}
	}
}
