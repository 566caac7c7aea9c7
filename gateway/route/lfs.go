package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/git"
)

// passesBatch reports whether a request of Git LFS for objects passes. If not, it has answered.
func (l *lane) passesBatch(w *writer, r *http.Request) bool {
	if err := unpack(r); err != nil {
		w.refuseLFS(err)
		return false
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, git.MaxBatch+1))
	switch {
	case err != nil:
		err = errors.New("the request of Git LFS broke off")
	case len(text) > git.MaxBatch:
		err = fmt.Errorf("the request of Git LFS is longer than %d bytes: set lfs.concurrenttransfers lower", git.MaxBatch)
	default:
		text, err = l.route.Git.ReadBatch(text)
	}
	if err != nil {
		w.refuseLFS(err)
		return false
	}
	r.Body = replaced{bytes.NewReader(text), r.Body}
	r.ContentLength, r.TransferEncoding = int64(len(text)), nil
	r.Header.Del("Content-Length")
	w.batch = true
	return true
}

// refuseLFS answers in the form of which Git LFS shows the message.
func (w *writer) refuseLFS(err error) {
	w.use.Code, w.use.Reason = sbxerr.EgressRoute, err.Error()
	text, _ := json.Marshal(map[string]string{"message": fmt.Sprintf("%s: %s", sbxerr.EgressRoute, err)})
	h := w.Header()
	clear(h)
	h.Set("Content-Type", git.LFSType)
	h.Set("X-Caisson-Code", string(sbxerr.EgressRoute))
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(text) // the client may be gone
}

// relocateBatch leads the objects of a batch that the upstream has to the route. Those that are
// elsewhere are fetched by the client, by the sandbox's own rules.
func (l *lane) relocateBatch(w *writer, res *http.Response) error {
	if !w.batch || res.StatusCode != http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, git.MaxBatchAnswer+1))
	_ = res.Body.Close()
	if err != nil || len(text) > git.MaxBatchAnswer {
		return errors.New("the answer to Git LFS broke off, or is too long")
	}
	own := w.at.URL() + "/"
	text, err = git.Relocated(text, func(href string) (string, bool) {
		at := l.relocate(w.at, res.Request.URL, href)
		return at, strings.HasPrefix(at, own)
	})
	if err != nil {
		return errors.New("the answer to Git LFS is no JSON as it should be")
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	res.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}
