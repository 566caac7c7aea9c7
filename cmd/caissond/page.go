package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/net/netutil"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/page"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server"
)

const (
	minPageToken    = 16  // characters
	pageConnections = 256 // each open page has a stream, and the calls of a moment
)

// site is the page before it is served.
type site struct {
	net.Listener
	settings config.Page
	token    string
	file     string // that holds the URL
}

// listenPage takes the address and the token of the page; nil where the configuration has
// none. A call before the daemon is ready waits.
func (d *daemon) listenPage(c config.Config) (*site, error) {
	if c.Page.Listen == "" {
		return nil, nil
	}
	token, err := pageToken(c.Page.TokenFile)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.DaemonConf, "caissond.page", fmt.Errorf("page.token_file: %w", err))
	}
	l, err := net.Listen("tcp", c.Page.Listen)
	if err != nil {
		return nil, sbxerr.New(sbxerr.DaemonConf, "caissond.page", "page.listen: %w", err)
	}
	d.onStop(func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return &site{Listener: l, settings: c.Page, token: token, file: c.PageURL()}, nil
}

// pageToken reads the token of a file that is root's alone. Without a file it makes one.
func pageToken(path string) (string, error) {
	if path == "" {
		return rand.Text(), nil
	}
	secret, err := readSecret(path)
	if err != nil {
		return "", err
	}
	token := secret.Reveal()
	if len(token) < minPageToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("file %q: the token has to be one word of %d or more printable ASCII characters", path, minPageToken)
	}
	return token, nil
}

// servePage serves the page in the name of root, until the daemon stops.
func (d *daemon) servePage(s *site, api http.Handler) error {
	if s == nil {
		return nil
	}
	if err := s.publish(); err != nil {
		return err
	}
	d.onStop(func(context.Context) error { return owndir.Unlink(s.file) })
	refused := &ratelog.Log[struct{}]{Record: func(_ struct{}, skipped uint64) {
		d.log.Warn("calls of the page without its token", "refused", skipped+1)
		d.tell(peer.NewContext(context.Background(), peer.Caller{}), events.CallRefused, events.Data{Call: "page", Code: sbxerr.PageToken, Skipped: skipped})
	}}
	srv := server.NewHTTP(page.New(page.Options{
		API: api, Caller: peer.User(0, 0, nil, int32(os.Getpid())), Token: s.token, Terminal: s.settings.Terminal,
		Refused: func() { refused.Suppress(struct{}{}) },
	}))
	d.onStop(func(context.Context) error {
		err := srv.Close()
		refused.Flush()
		return err
	})
	d.log.Info("the page is served", "address", s.Addr().String(), "terminal", s.settings.Terminal)
	go func() {
		if err := srv.Serve(netutil.LimitListener(s, pageConnections)); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("serve the page", "err", err)
		}
	}()
	return nil
}

// publish writes the URL for root, with the token in the fragment: a browser sends that
// nowhere.
func (s *site) publish() error {
	url := fmt.Sprintf("http://%s/#token=%s\n", s.Addr(), s.token)
	err := errors.Join(owndir.Unlink(s.file), func() error {
		f, err := os.OpenFile(s.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(url)
		return errors.Join(err, f.Close())
	}())
	return sbxerr.Wrap(sbxerr.StateDir, "caissond.page", err)
}
