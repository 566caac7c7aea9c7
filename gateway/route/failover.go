package route

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/usage"
)

// maxResent is the longest body that is kept so that it can be sent to another upstream.
const maxResent = 4 << 20

// asideTime is how long an upstream that did not answer is asked after the others.
const asideTime = 30 * time.Second

// away are the statuses of an upstream that does not serve anything now. 529 is what models say
// that have too much to do.
var away = []int{http.StatusBadGateway, http.StatusServiceUnavailable, 529}

// turnTo is the upstream of r with an address HOST:PORT, as package net/http writes it.
func turnTo(r *policy.Routed, address string) int {
	for turn := 1; turn <= r.Turns(); turn++ { // the last one may be the server of tokens
		up := r.Turn(turn)
		if up != nil && strings.EqualFold(address, net.JoinHostPort(up.Base.Hostname(), strconv.Itoa(int(up.Port)))) {
			return turn
		}
	}
	return 0
}

// way sends the request of w to the upstreams.
func (l *lane) way(w *writer) http.RoundTripper {
	switch {
	case l.route.Registry && l.route.Credential != "":
		return &registry{l, w}
	case l.route.Turns() == 1:
		return l.transport
	}
	return &failover{l, w.use}
}

// failover sends a request to one upstream after the other, until one answers.
type failover struct {
	*lane
	use *usage.Use
}

// RoundTrip implements http.RoundTripper.
func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	body, again, err := resendable(r)
	if err != nil {
		return nil, err
	}
	turns := f.turns(time.Now())
	if !again {
		turns = turns[:1]
	}
	for i, turn := range turns {
		res, sent, err := f.try(r, body, turn)
		if err != nil && r.Context().Err() != nil {
			return nil, err
		}
		last := i == len(turns)-1
		if err == nil && !slices.Contains(away, res.StatusCode) {
			f.down[turn].Store(0)
			if turn > 0 && f.use.Reason == "" {
				f.use.Reason = "answered by " + f.route.Turn(turn).Base.Host
			}
			return res, nil
		}
		f.down[turn].Store(time.Now().Add(asideTime).UnixNano())
		if last || err != nil && sent && !harmless(r.Method) {
			return res, err
		}
		if err == nil {
			_ = res.Body.Close()
		}
	}
	return nil, errors.New("the route has no upstream") // it has at least one
}

// harmless reports whether a request may arrive twice.
func harmless(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// turns is the order in which upstreams are asked.
func (f *failover) turns(now time.Time) (order []int) {
	var aside []int
	for turn := range f.down {
		if f.down[turn].Load() > now.UnixNano() {
			aside = append(aside, turn)
		} else {
			order = append(order, turn)
		}
	}
	return append(order, aside...)
}

// try sends r to one upstream. sent says that some of it may have arrived.
func (f *failover) try(r *http.Request, body []byte, turn int) (res *http.Response, sent bool, err error) {
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	out := r.Clone(ctx)
	if turn > 0 {
		from, to := f.route.Base, f.route.Turn(turn).Base
		out.URL.Scheme, out.URL.Host, out.Host = to.Scheme, to.Host, to.Host
		out.URL.Path = to.Path + strings.TrimPrefix(r.URL.Path, from.Path)
		out.URL.RawPath = to.EscapedPath() + strings.TrimPrefix(r.URL.RawPath, from.EscapedPath())
	}
	if body != nil {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody()
	}
	res, err = f.transport.RoundTrip(out)
	return res, sent, err
}

// resendable reads the body of r if it is short. Else r can be sent once.
func resendable(r *http.Request) (body []byte, again bool, err error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, true, nil
	case r.ContentLength < 0 || r.ContentLength > maxResent:
		return nil, false, nil
	}
	body, err = io.ReadAll(r.Body)
	return body, true, errors.Join(err, r.Body.Close())
}

// baseOf is the base URL of the upstream that answered at u.
func (l *lane) baseOf(u *url.URL) *url.URL {
	for turn := range l.route.Turns() {
		base := l.route.Turn(turn).Base
		if base.Scheme == u.Scheme && base.Host == u.Host && strings.HasPrefix(u.EscapedPath(), base.EscapedPath()) {
			return base
		}
	}
	return l.route.Base
}
