package registry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/need"
	"github.com/caisson-run/caisson/tests/regtest"
)

// Addresses of the test's namespace.
const (
	public   = "93.184.215.14"
	site     = "10.9.8.7"
	metadata = "169.254.169.254"
	own      = "93.184.215.77" // the host's, as its link has it
)

// inNamespace runs the test t alone in a network namespace of its own, with env besides.
func inNamespace(t *testing.T, env ...string) (inside bool) {
	t.Helper()
	const mark = "CAISSON_TEST_IN_NAMESPACE"
	if os.Getenv(mark) != "" {
		return true
	}
	need.Root(t, "it makes a network namespace")
	if os.Getenv("CAISSON_REGISTRY") == "" {
		regtest.Start(t) // it says what is needed
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), mark+"=1"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET,
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	return false
}

// addresses gives the namespace those of the test.
func addresses(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err == nil {
		err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(own))})
	}
	for _, addr := range []string{public, site, metadata} { // servers elsewhere: no link has the address
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{
				LinkIndex: lo.Attrs().Index, Dst: netlink.NewIPNet(net.ParseIP(addr)), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// siteServer is one server of the test, and how often it was asked.
type siteServer struct {
	asked atomic.Int64
	url   string
}

func serveAt(t *testing.T, addr string, cert *tls.Certificate, h http.Handler) *siteServer {
	t.Helper()
	s := &siteServer{}
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		h.ServeHTTP(w, r)
	})}}
	if cert == nil {
		server.Start()
	} else {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}}
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// certificate is for all addresses of the test.
func certificate(t *testing.T, addrs ...string) (*tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"}}
	for _, a := range addrs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A registry sends the daemon no nearer than it is itself: not to this host, not to the
// site, and never to the services of a cloud.
func TestRedirectsAreJudged(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addresses(t)
	content := regtest.Start(t)
	content.Push(t, "app", "1", regtest.Tar(t, "a", strings.Repeat("one", 100_000)))
	cert, ca := certificate(t, public, site, metadata, own, "127.0.0.1")
	targets := map[string]*siteServer{
		"plain":    serveAt(t, "127.0.0.1", nil, content),
		"loopback": serveAt(t, "127.0.0.1", cert, content),
		"public":   serveAt(t, public, cert, content),
		"site":     serveAt(t, site, cert, content),
		"metadata": serveAt(t, metadata, cert, content),
		"own":      serveAt(t, own, cert, content),
	}
	for _, tt := range []struct {
		registry string // its address
		to       string
		allowed  bool
	}{
		{"127.0.0.1", "plain", true}, // the controls: what is refused below can be reached
		{"127.0.0.1", "loopback", true},
		{"127.0.0.1", "public", true},
		{"127.0.0.1", "site", true},
		{"127.0.0.1", "own", true},
		{"127.0.0.1", "metadata", false},
		{public, "plain", false},
		{public, "loopback", false},
		{public, "public", true},
		{public, "own", false},
		{public, "site", false},
		{public, "metadata", false},
		{site, "loopback", false},
		{site, "site", true},
		{site, "public", true},
		{site, "own", false},
		{metadata, "public", true}, // which somebody named
		{site, "metadata", false},
	} {
		t.Run(tt.registry+" to "+tt.to, func(t *testing.T) {
			front := serveAt(t, tt.registry, cert, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, targets[tt.to].url+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				content.ServeHTTP(w, r)
			}))
			host := strings.TrimPrefix(front.url, "https://")
			hosts := filepath.Join(t.TempDir(), "hosts")
			if err := os.MkdirAll(filepath.Join(hosts, host), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"hosts.toml": fmt.Sprintf("server = %q\nca = \"ca.pem\"\n", front.url), "ca.pem": string(ca)} {
				if err := os.WriteFile(filepath.Join(hosts, host, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			client, err := registry.New(registry.Config{
				Allowed: []string{host}, HostsDir: hosts, SpoolDir: t.TempDir(), Timeout: time.Minute, Stall: 5 * time.Second, Pause: time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := registry.Parse(host + "/app:1")
			if err != nil {
				t.Fatal(err)
			}
			before := targets[tt.to].asked.Load()
			_, err = pullWith(t.Context(), client, ref, registry.Caller{})
			asked := targets[tt.to].asked.Load() - before
			switch {
			case tt.allowed && (err != nil || asked == 0):
				t.Errorf("%d requests, %v", asked, err)
			case !tt.allowed && (sbxerr.Of(err) != sbxerr.PullRefused || asked > 0):
				t.Errorf("%d requests, %s: %v", asked, sbxerr.Of(err), err)
			}
		})
	}
}

// Where the daemon has a proxy, connections go there, and the host's authorities hold.
func TestProxy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authorities.pem")
	if !inNamespace(t, "HTTPS_PROXY=http://127.0.0.1:3128", "SSL_CERT_FILE="+file) {
		return
	}
	addresses(t)
	content := regtest.Start(t)
	content.Push(t, "app", "1", regtest.Tar(t, "a", "one"))
	cert, ca := certificate(t, public)
	file = os.Getenv("SSL_CERT_FILE")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	server := serveAt(t, public, cert, content)
	l, err := net.Listen("tcp", "127.0.0.1:3128")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		to, err := net.Dial("tcp", r.Host)
		if err != nil || r.Method != http.MethodConnect {
			t.Errorf("%s %s: %v", r.Method, r.Host, err)
			return
		}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(to, conn) }() // until either has gone
		_, _ = io.Copy(conn, to)
	})}
	go func() { _ = proxy.Serve(l) }() // until it is closed
	defer proxy.Close()
	host := strings.TrimPrefix(server.url, "https://")
	client, err := registry.New(registry.Config{Allowed: []string{host}, SpoolDir: t.TempDir(), Timeout: time.Minute, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := registry.Parse(host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = pullWith(t.Context(), client, ref, registry.Caller{}); err != nil || asked.Load() == 0 || server.asked.Load() == 0 {
		t.Errorf("%d requests of the proxy, %d of the registry: %v", asked.Load(), server.asked.Load(), err)
	}
}
