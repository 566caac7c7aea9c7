package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/rest"
)

// contentPolicy allows the page's own files and calls, and nothing else: no inline script
// or style, no frame around it, no form, no other host.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// harden sets what every answer says to the browser.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// checkHost refuses a request under a name that is not the loopback interface's. A name
// of an attacker may be made to lead here (DNS rebinding); the browser then sends it.
func checkHost(host string) error {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	a, err := netip.ParseAddr(strings.Trim(name, "[]"))
	if name == "localhost" || err == nil && a.IsLoopback() {
		return nil
	}
	return sbxerr.New(sbxerr.PageGuard, "page.host", "the header Host is %q, which is no address of the loopback interface", sbxerr.Clip(host))
}

// checkOrigin refuses what another site's page sends. The standard library lets each GET
// pass, because it changes nothing. Here a GET of the API returns data, so it is judged as
// a POST.
func checkOrigin(r *http.Request) error {
	judged := *r
	judged.Method = http.MethodPost
	if err := http.NewCrossOriginProtection().Check(&judged); err != nil {
		return sbxerr.New(sbxerr.PageGuard, "page.origin", "the request comes from the page of another site: %w", err)
	}
	return nil
}

// token is the digest of a secret. Digests are compared: they are of one length.
type token [sha256.Size]byte

func newToken(secret string) token { return sha256.Sum256([]byte(secret)) }

// check refuses a request without the secret in its header Authorization.
func (t token) check(r *http.Request) error {
	secret, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	given := newToken(secret)
	if !bearer || subtle.ConstantTimeCompare(given[:], t[:]) != 1 {
		return sbxerr.New(sbxerr.PageToken, "page.token", "the header Authorization does not hold the token of this page")
	}
	return nil
}

// refuse answers with err, and says to the browser how to authenticate where that is due.
func refuse(w http.ResponseWriter, status int, err error) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="caisson"`)
	}
	w.Header().Set("Connection", "close") // and so no body is read
	rest.Refuse(w, status, err)
}
