// Package webhook delivers events to an HTTP server of the operator's: in order, one at a
// time, each as a CloudEvent that is signed as Standard Webhooks asks.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
)

// The bounds of one delivery, and of the waits between attempts.
const (
	timeout   = 10 * time.Second
	maxAnswer = 4 << 10 // bytes of an answer that are read
	firstWait = time.Second
	lastWait  = time.Minute
)

// Options are what a Hook is made of.
type Options struct {
	URL    string
	Secret []byte // from [ParseSecret]
	Filter events.Filter
	Log    *slog.Logger // nil discards
	// FirstWait is the wait after the first failure; each later one is twice as long, up to
	// a minute. 0 is a second.
	FirstWait time.Duration
	// Timeout bounds one attempt; 0 is 10 s.
	Timeout time.Duration
}

// Hook delivers events to one server.
type Hook struct {
	o      Options
	client *http.Client
	failed bool // the newest attempt, and that was logged
}

// New returns a Hook. It follows no redirect and uses no proxy.
func New(o Options) *Hook {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FirstWait == 0 {
		o.FirstWait = firstWait
	}
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	return &Hook{o: o, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// secretPrefix begins a secret of Standard Webhooks.
const secretPrefix = "whsec_"

// ParseSecret reads a secret in the form of Standard Webhooks: whsec_ and 24 to 64 bytes
// in base64. The error quotes nothing of it.
func ParseSecret(text string) ([]byte, error) {
	encoded, found := strings.CutPrefix(text, secretPrefix)
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(secret) < 24 || len(secret) > 64 {
		return nil, errors.New("the secret is not whsec_ and 24 to 64 bytes in base64")
	}
	return secret, nil
}

// Run delivers what r reads until ctx ends. While the server fails, events wait in the
// bus. Those that it drops meanwhile are told as one event of the type events.lost.
func (h *Hook) Run(ctx context.Context, r *events.Reader) {
	takes := func(e *events.Event) bool { return h.o.Filter.Takes(e) }
	err := r.Follow(ctx, true, takes, func(e *events.Event) error { return h.deliver(ctx, e) })
	if ctx.Err() == nil { // it ends with ctx alone
		h.o.Log.Error("webhook ended", "err", err)
	}
}

// deliver tries until the server has taken e, or has refused it for good, or ctx ends.
func (h *Hook) deliver(ctx context.Context, e *events.Event) error {
	if e.Type == events.Lost {
		named := *e
		named.ID = "lost-" + rand.Text() // CloudEvents asks for one
		e = &named
		h.o.Log.Warn("webhook: events were dropped before they were delivered", "events", e.Data.Lost)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	for wait := h.o.FirstWait; ; wait = min(2*wait, lastWait) {
		again, err := h.attempt(ctx, e.ID, body)
		h.tell(e.ID, again, err)
		if !again {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attempt sends an event once. again says that another attempt may succeed.
func (h *Hook) attempt(ctx context.Context, id string, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.o.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.o.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("User-Agent", "caisson")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", now)
	r.Header.Set("Webhook-Signature", sign(h.o.Secret, id, now, body))
	res, err := h.client.Do(r)
	if err != nil {
		if sent := (*url.Error)(nil); errors.As(err, &sent) {
			err = sent.Err // without the URL, whose path may be a secret
		}
		return true, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	err = errors.Join(err, res.Body.Close())
	switch s := res.StatusCode; {
	case s/100 == 2:
		return false, nil // what the body says is of no interest, whole or not
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s >= 500:
		return true, errors.Join(fmt.Errorf("status %d", s), err)
	default:
		return false, fmt.Errorf("status %d", s)
	}
}

// sign is the signature of Standard Webhooks, version 1.
func sign(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + timestamp + ".")) // never fails (hash.Hash)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// tell logs the first failure of a row, each event that was refused for good, and the end
// of the row.
func (h *Hook) tell(id string, again bool, err error) {
	switch {
	case err != nil && !again:
		h.o.Log.Warn("webhook: the server refused an event", "id", id, "err", err)
	case err != nil && !h.failed:
		h.o.Log.Warn("webhook: the server fails, deliveries wait", "id", id, "err", err)
	case err == nil && h.failed:
		h.o.Log.Info("webhook: the server takes events again", "id", id)
	}
	h.failed = err != nil && again
}
