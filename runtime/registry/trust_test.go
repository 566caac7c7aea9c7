package registry_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/registry"
)

var ann = registry.Credentials{Username: "ann", Password: "secret of ann"}

// basic asks for ann's password.
func basic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != ann.Username || password != ann.Password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer asks for a token, which the server at realm gives for ann's password.
func bearer(realm string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				giveToken(w, r)
			case r.Header.Get("Authorization") != "Bearer token-of-ann":
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test",scope="repository:app:pull"`, realm))
				w.WriteHeader(http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

func giveToken(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // an empty form is refused below
	user, password, _ := r.BasicAuth()
	if r.Method == http.MethodPost {
		user, password = r.PostForm.Get("username"), r.PostForm.Get("password")
	}
	if (user != ann.Username || password != ann.Password) && r.PostForm.Get("refresh_token") != "identity" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprint(w, `{"access_token":"token-of-ann","token":"token-of-ann"}`)
}

func TestAuthentication(t *testing.T) {
	b := newBench(t)
	for name, front := range map[string]func(http.Handler) http.Handler{"basic": basic, "token": bearer(b.server.URL)} {
		b.setFront(front)
		for who, c := range map[string]struct {
			credentials registry.Credentials
			code        sbxerr.Code
		}{
			"ann":     {ann, ""},
			"nobody":  {registry.Credentials{}, sbxerr.RegistryAuth},
			"mallory": {registry.Credentials{Username: "ann", Password: "wrong"}, sbxerr.RegistryAuth},
		} {
			b.caller.Credentials = c.credentials
			_, err := b.pull(t, "app:1")
			if sbxerr.Of(err) != c.code {
				t.Errorf("%s, %s: %v", name, who, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: the error tells the password: %v", name, who, err)
			}
		}
	}
	b.setFront(bearer(b.server.URL))
	b.caller.Credentials = registry.Credentials{IdentityToken: "identity"}
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Errorf("identity token: %v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v", ann, ann, ann); strings.Contains(s, "secret") {
		t.Errorf("printed: %s", s)
	}
}

// elsewhere is another server. It remembers what it was asked.
type elsewhere struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newElsewhere(t *testing.T, answer http.HandlerFunc) *elsewhere {
	t.Helper()
	e := &elsewhere{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.seen = append(e.seen, r)
		e.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *elsewhere) asked() []*http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// TestRealmElsewhere: credentials go to a token server that the configuration names, and
// to no other.
func TestRealmElsewhere(t *testing.T) {
	b := newBench(t)
	b.caller.Credentials = ann
	other := newElsewhere(t, giveToken) // of another port
	b.setFront(bearer(other.URL))
	_, err := b.pull(t, "app:1")
	if sbxerr.Of(err) != sbxerr.PullRefused || !strings.Contains(sbxerr.RemedyOf(err), "registries.realms") {
		t.Errorf("%s: %v", sbxerr.Of(err), err)
	}
	if n := len(other.asked()); n > 0 {
		t.Fatalf("the other server was asked %d times", n)
	}
	b.config.Realms = []string{strings.TrimPrefix(other.URL, "http://")}
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Error(err)
	}
	if len(other.asked()) == 0 {
		t.Error("the token server was not asked")
	}
}

// TestRedirects: content may come from elsewhere; what is for the registry stays there.
func TestRedirects(t *testing.T) {
	b := newBench(t)
	b.caller.Credentials = ann
	b.hosts(t, fmt.Sprintf("server = %q\n[header]\nX-Secret = [\"of the registry\"]\n", b.server.URL))
	other := newElsewhere(t, b.Registry.ServeHTTP)
	for name, to := range map[string]string{
		"another port": other.URL,
		"another name": strings.Replace(other.URL, "127.0.0.1", "localhost", 1),
	} {
		t.Run(name, func(t *testing.T) {
			before := len(other.asked())
			b.setFront(func(next http.Handler) http.Handler {
				return basic(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.Contains(r.URL.Path, "/blobs/") {
						http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
						return
					}
					next.ServeHTTP(w, r)
				}))
			})
			if _, err := b.pull(t, "app:1"); err != nil {
				t.Fatal(err)
			}
			if r := b.requests("/manifests/"); len(r) == 0 || r[len(r)-1].Header.Get("X-Secret") == "" {
				t.Error("the registry itself did not get its header")
			}
			asked := other.asked()[before:]
			if len(asked) == 0 {
				t.Fatal("the other server was not asked")
			}
			for _, r := range asked {
				if r.Header.Get("Authorization") != "" || r.Header.Get("X-Secret") != "" || r.Header.Get("Referer") != "" {
					t.Errorf("the other server got %v", r.Header)
				}
			}
		})
	}
	t.Run("who asks for credentials", func(t *testing.T) {
		greedy := newElsewhere(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
		b.setFront(func(next http.Handler) http.Handler {
			return basic(http.RedirectHandler(greedy.URL+"/v2/", http.StatusFound))
		})
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.PullRefused {
			t.Errorf("%s: %v", sbxerr.Of(err), err)
		}
		for _, r := range greedy.asked() {
			if r.Header.Get("Authorization") != "" {
				t.Error("it got them")
			}
		}
	})
	t.Run("in the clear", func(t *testing.T) {
		b.setFront(func(http.Handler) http.Handler { return http.RedirectHandler("http://192.0.2.1/v2/", http.StatusFound) })
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.PullRefused || !strings.Contains(err.Error(), "is not HTTPS") {
			t.Errorf("%s: %v", sbxerr.Of(err), err)
		}
	})
	t.Run("a token server", func(t *testing.T) {
		thief := newElsewhere(t, giveToken)
		b.setFront(func(next http.Handler) http.Handler {
			asking := bearer(b.server.URL)(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					http.Redirect(w, r, thief.URL+"/token", http.StatusTemporaryRedirect)
					return
				}
				asking.ServeHTTP(w, r)
			})
		})
		if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.PullRefused {
			t.Errorf("%s: %v", sbxerr.Of(err), err)
		}
		if len(thief.asked()) > 0 {
			t.Error("it got the password")
		}
	})
}

// hosts writes hosts.toml for the bench's registry.
func (b *bench) hosts(t *testing.T, text string) (dir string) {
	t.Helper()
	b.config.HostsDir = t.TempDir()
	dir = filepath.Join(b.config.HostsDir, b.host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPrivateCA(t *testing.T) {
	b := newBench(t)
	server := httptest.NewTLSServer(b)
	defer server.Close()
	b.host = strings.TrimPrefix(server.URL, "https://")
	b.config.Allowed = []string{b.host}
	dir := b.hosts(t, fmt.Sprintf("server = %q\n", server.URL))
	_, err := b.pull(t, "app:1")
	if sbxerr.Of(err) != sbxerr.Registry || !strings.Contains(sbxerr.RemedyOf(err), "private CA") {
		t.Errorf("%s: %v", sbxerr.Of(err), err)
	}
	if n := len(b.requests("")); n > 0 {
		t.Errorf("it was asked %d times", n)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	b.hostsIn(t, dir, fmt.Sprintf("server = %q\nca = \"ca.pem\"\n", server.URL))
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Error(err)
	}
}

func (b *bench) hostsIn(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestClientCertificate: the server's own certificate serves as the client's, too.
func TestClientCertificate(t *testing.T) {
	b := newBench(t)
	server := httptest.NewUnstartedServer(b)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	b.host = strings.TrimPrefix(server.URL, "https://")
	b.config.Allowed = []string{b.host}
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	dir := b.hosts(t, fmt.Sprintf("server = %q\nca = \"cert.pem\"\n", server.URL))
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.Registry {
		t.Errorf("without a certificate: %v", err)
	}
	b.hostsIn(t, dir, fmt.Sprintf("server = %q\nca = \"cert.pem\"\nclient = [[\"cert.pem\", \"key.pem\"]]\n", server.URL))
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Error(err)
	}
}

// TestMirror: a mirror is asked first, without the registry's credentials, and one that
// is down costs no time.
func TestMirror(t *testing.T) {
	b := newBench(t)
	b.caller.Credentials = ann
	mirror := newElsewhere(t, b.Registry.ServeHTTP)
	b.hosts(t, fmt.Sprintf("server = %q\n[host.%q]\n", b.server.URL, mirror.URL))
	b.setFront(basic)
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Fatal(err)
	}
	if len(mirror.asked()) == 0 || len(b.requests("")) > 0 {
		t.Errorf("the mirror was asked %d times, the registry %d", len(mirror.asked()), len(b.requests("")))
	}
	for _, r := range mirror.asked() {
		if r.Header.Get("Authorization") != "" {
			t.Error("the mirror got the registry's credentials")
		}
	}
	mirror.Close()
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Errorf("without the mirror: %v", err)
	}
}

// TestRootsCredentials: the daemon's own file serves root alone.
func TestRootsCredentials(t *testing.T) {
	b := newBench(t)
	b.setFront(basic)
	file := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, b.host, base64.StdEncoding.EncodeToString([]byte(ann.Username+":"+ann.Password)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.config.Credentials = file
	b.caller = registry.Caller{Root: true}
	if _, err := b.pull(t, "app:1"); err != nil {
		t.Error(err)
	}
	b.caller = registry.Caller{UID: 1000}
	if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.RegistryAuth {
		t.Errorf("another user: %v", err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pull(t, "app:1"); sbxerr.Of(err) != sbxerr.DaemonConf {
		t.Errorf("a file for everybody: %v", err)
	}
}

// TestHostsFileIsRefused: a file that is not understood never means the registry itself.
func TestHostsFileIsRefused(t *testing.T) {
	b := newBench(t)
	for text, says := range map[string]string{
		"server = ":                       "toml:",
		"sever = \"https://example.com\"": `line 1: unknown key "sever"`,
		"[host.\"https://example.com\"]\nskipverify = true":                 `line 2: unknown key "host.https://example.com.skipverify"`,
		"server = \"http://example.com\"":                                   "is not HTTPS",
		"[host.\"http://mirror.example.com\"]":                              "is not HTTPS",
		"server = \"http://127.0.0.1:1\"\nca = \"x\"":                       "has settings of TLS",
		"server = \"https://example.com\"\nskip_verify = true":              "skip_verify is for servers of this host",
		"server = \"https://example.com\"\n[header]\nauthorization = \"x\"": "give credentials in registries.credentials",
		"server = \"https://\"":                                             "is no address of a server",
	} {
		b.hosts(t, text)
		_, err := b.pull(t, "app:1")
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if n := len(b.requests("")); n > 0 {
		t.Errorf("the registry was asked %d times", n)
	}
}
