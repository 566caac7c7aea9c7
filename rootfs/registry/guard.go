package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker/auth"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

const opGuard = "registry.request"

// maxRedirects bounds how often one request is sent elsewhere.
const maxRedirects = 5

// guard decides what the requests for one image carry. Where they may go, the daemon decides.
type guard struct {
	servers []string // the registry's origins, with its mirrors
	realms  []string // hosts beside them that may give tokens
	stall   time.Duration
	pause   time.Duration

	mu     sync.Mutex
	tokens []string // origins of token servers that were accepted
}

// plainHeaders are sent to hosts that are not the registry. Others may be secrets of
// the registry, out of hosts.toml.
var plainHeaders = []string{"Accept", "Accept-Encoding", "Authorization", "Content-Type", "Range", "User-Agent"}

// checkRedirect keeps credentials with the server that they are for.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects {
		return sbxerr.New(sbxerr.Registry, opGuard, "%s redirects more than %d times", first.URL.Host, maxRedirects)
	}
	if imagework.Origin(req.URL) == imagework.Origin(first.URL) {
		return nil
	}
	if first.Method != http.MethodGet && first.Method != http.MethodHead { // its body holds the credentials
		return sbxerr.New(sbxerr.PullRefused, opGuard, "%s redirects a request with credentials to %s", first.URL.Host, req.URL.Host)
	}
	req.Header.Del("Authorization")
	req.Header.Del("Referer")
	return nil
}

// request prepares req for where it goes.
func (g *guard) request(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "caisson")
	req.Header.Set("Accept-Encoding", "identity")
	if !slices.Contains(g.servers, imagework.Origin(req.URL)) {
		for name := range req.Header {
			if !slices.Contains(plainHeaders, name) {
				req.Header.Del(name)
			}
		}
	}
	return req
}

// response refuses a demand for credentials by somebody to whom they are not to go.
func (g *guard) response(resp *http.Response) error {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return sbxerr.New(sbxerr.ImageFormat, opGuard, "%s sends its content packed (%s), which was not asked for", resp.Request.URL.Host, sbxerr.Clip(encoding))
	}
	if resp.StatusCode != http.StatusUnauthorized || g.isToken(resp.Request.URL) {
		return nil
	}
	if !slices.Contains(g.servers, imagework.Origin(resp.Request.URL)) {
		return sbxerr.New(sbxerr.PullRefused, opGuard, "%s, to which the registry redirects, asks for credentials: they are the registry's alone", resp.Request.URL.Host)
	}
	var errs []error
	for _, c := range auth.ParseAuthHeader(resp.Header) {
		if c.Scheme == auth.BearerAuth {
			errs = append(errs, g.acceptRealm(resp.Request.URL, c.Parameters["realm"]))
		}
	}
	return errors.Join(errs...)
}

// acceptRealm allows a token server on the registry's own host and port, or one that the
// configuration names.
func (g *guard) acceptRealm(server *url.URL, realm string) error {
	u, err := url.Parse(realm)
	if err != nil || u.Host == "" {
		return sbxerr.New(sbxerr.Registry, opGuard, "%s sends clients to the token server %q, which is no address", server.Host, sbxerr.Clip(realm))
	}
	if imagework.Origin(u) != imagework.Origin(server) && !slices.Contains(g.realms, u.Host) {
		return sbxerr.WithRemedy(sbxerr.PullRefused, opGuard,
			fmt.Errorf("%s sends clients with their credentials to %q, which is another server", server.Host, sbxerr.Clip(u.Host)),
			fmt.Sprintf("if that is its token server, add %q to registries.realms in the daemon's configuration", u.Host))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := imagework.Origin(u) + u.Path; !slices.Contains(g.tokens, o) {
		g.tokens = append(g.tokens, o)
	}
	return nil
}

// isToken reports whether u is a token server that was accepted.
func (g *guard) isToken(u *url.URL) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.tokens, imagework.Origin(u)+u.Path)
}
