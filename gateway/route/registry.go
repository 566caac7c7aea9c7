package route

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The bounds of a registry's tokens.
const (
	maxGrant     = 64 << 10 // bytes of the answer with a token
	maxGrants    = 256      // that are kept, one for each repository and direction
	maxChallenge = 4 << 10
	shortGrant   = time.Minute // how long a token lives that does not say so
	earlyGrant   = 10 * time.Second
)

const opRegistry = "route.registry"

// registry sends requests to a registry of images. Where it wants a token for a repository, as
// most public ones do, the token is fetched with the credential, and neither gets inside.
type registry struct {
	*lane
	w *writer
}

// RoundTrip implements http.RoundTripper.
func (g *registry) RoundTrip(r *http.Request) (*http.Response, error) {
	about := aboutOf(r)
	if token := g.grants.get(about, time.Now()); token != "" {
		g.put(r, token)
	}
	res, err := g.transport.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusUnauthorized || r.Body != nil && r.ContentLength != 0 {
		return res, err
	}
	challenge, ok := bearerOf(res.Header.Values("Www-Authenticate"))
	if !ok {
		return res, nil
	}
	_ = res.Body.Close()
	token, until, err := g.fetch(r.Context(), challenge)
	if err != nil {
		return nil, err
	}
	g.grants.set(about, token, until)
	again := r.Clone(r.Context())
	again.Body = http.NoBody
	g.put(again, token)
	return g.transport.RoundTrip(again)
}

// put puts a token into a request, and has it masked in the answer.
func (g *registry) put(r *http.Request, token string) {
	r.Header["Authorization"] = []string{"Bearer " + token}
	g.w.mask = g.mask.And([]byte(token))
}

// aboutOf is what tokens are for: a repository, and whether it is read or changed.
func aboutOf(r *http.Request) string {
	repository := strings.TrimPrefix(r.URL.Path, "/v2/")
	for _, of := range []string{"/manifests/", "/blobs/", "/tags/", "/referrers/"} {
		if i := strings.LastIndex(repository, of); i >= 0 {
			repository = repository[:i]
			break
		}
	}
	if harmless(r.Method) {
		return "pull " + repository
	}
	return "push " + repository
}

var challengePart = regexp.MustCompile(`([a-z]+)="([^"\\]*)"`)

// bearerOf reads a challenge (RFC 6750, 3) among values.
func bearerOf(values []string) (parts map[string]string, ok bool) {
	for _, v := range values {
		scheme, rest, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "bearer") || len(v) > maxChallenge {
			continue
		}
		parts = map[string]string{}
		for _, m := range challengePart.FindAllStringSubmatch(rest, -1) {
			parts[m[1]] = m[2]
		}
		return parts, parts["realm"] != ""
	}
	return nil, false
}

// fetch asks for a token. The credential goes to no server but those of the route.
func (g *registry) fetch(ctx context.Context, challenge map[string]string) (token string, until time.Time, err error) {
	at, err := url.Parse(challenge["realm"])
	if err != nil || !g.givesTokens(at) {
		return "", until, sbxerr.New(sbxerr.EgressRoute, opRegistry, "the registry sends for tokens to %.200q, which is not a server of the route: auth: in the route names it", challenge["realm"])
	}
	query := at.Query()
	for _, key := range []string{"service", "scope"} {
		if challenge[key] != "" {
			query.Set(key, challenge[key])
		}
	}
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return "", until, err
	}
	r.Header["User-Agent"] = nil
	r.Header[g.placed.header] = []string{g.placed.text}
	res, err := g.transport.RoundTrip(r)
	if err != nil {
		return "", until, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", until, sbxerr.New(sbxerr.EgressRoute, opRegistry, "the server of tokens does not take the credential %q: it answers with status %d", g.route.Credential, res.StatusCode)
	}
	return readGrant(io.LimitReader(res.Body, maxGrant), time.Now())
}

// givesTokens reports whether the route names the server of u.
func (g *registry) givesTokens(u *url.URL) bool {
	base := g.route.Base
	if turn := g.route.TokenTurn(); turn > 0 {
		base = g.route.Turn(turn).Base
	}
	return u.User == nil && u.Scheme == base.Scheme && strings.EqualFold(u.Host, base.Host) && strings.HasPrefix(u.EscapedPath(), base.EscapedPath())
}

// maxToken is the longest token that is sent, in bytes.
const maxToken = 16 << 10

var tokenForm = regexp.MustCompile(`^[!-~]{8,}$`)

// readGrant reads a token, and until when it lives.
func readGrant(from io.Reader, now time.Time) (token string, until time.Time, err error) {
	var said struct {
		Token   string  `json:"token"`
		Access  string  `json:"access_token"`
		Expires float64 `json:"expires_in"`
	}
	if err := json.NewDecoder(from).Decode(&said); err != nil {
		return "", until, sbxerr.New(sbxerr.EgressRoute, opRegistry, "the server of tokens answers with something else")
	}
	if token = said.Token; token == "" {
		token = said.Access
	}
	if len(token) > maxToken || !tokenForm.MatchString(token) {
		return "", until, sbxerr.New(sbxerr.EgressRoute, opRegistry, "the server of tokens answers with none that could be sent")
	}
	lives := shortGrant
	if said.Expires > lives.Seconds() && said.Expires < (24*time.Hour).Seconds() {
		lives = time.Duration(said.Expires * float64(time.Second))
	}
	return token, now.Add(lives - earlyGrant), nil
}

// grants are the tokens of a lane.
type grants struct {
	mu sync.Mutex
	by map[string]grant
}

type grant struct {
	token string
	until time.Time
}

func (g *grants) get(about string, now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if have := g.by[about]; now.Before(have.until) {
		return have.token
	}
	return ""
}

func (g *grants) set(about, token string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil || len(g.by) >= maxGrants {
		g.by = map[string]grant{}
	}
	g.by[about] = grant{token, until}
}
