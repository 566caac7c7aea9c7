package route

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/git"
)

// maxUnread is how many bytes of a refused push are read, since git looks at no answer before
// it has sent all.
const maxUnread = 256 << 20

// gitHeaders are those that git sends. By others, servers may take a request for another one.
var gitHeaders = []string{"Accept", "Accept-Language", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Git-Protocol", "Pragma", "User-Agent"}

const gitRemedy = "have the profile's route name the repository, branch or access"

// passesGit reports whether a request passes what the route allows of git. If not, it has
// answered. The body of a push is replaced by one that begins as it did.
func (l *lane) passesGit(w *writer, r *http.Request) bool {
	const op = "route.git"
	kind, err := l.route.Git.Request(r.Method, r.URL.Path, r.URL.RawQuery)
	if err != nil && git.IsLFS(r.URL.Path) {
		w.refuseLFS(err)
		return false
	}
	if err != nil {
		w.refuse(sbxerr.WithRemedy(sbxerr.EgressRoute, op, err, gitRemedy))
		return false
	}
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return !slices.Contains(gitHeaders, name) })
	switch kind {
	case git.Push:
	case git.Batch:
		return l.passesBatch(w, r)
	default:
		return true
	}
	if err := unpack(r); err != nil {
		w.refuse(sbxerr.WithRemedy(sbxerr.EgressRoute, op, err, ""))
		return false
	}
	body := r.Body
	updates, err := git.ReadUpdates(body)
	var refused map[string]string
	if err == nil {
		refused, err = l.route.Git.Refuses(updates)
	}
	if err != nil || len(refused) > 0 {
		_, _ = io.CopyN(io.Discard, body, maxUnread) // the client may be gone
		w.refusePush(updates, refused, err)
		return false
	}
	if len(updates.List) > 0 {
		w.use.Reason = "updates " + updates.String()
	}
	r.Body = replaced{io.MultiReader(bytes.NewReader(updates.Head), body), body}
	return true
}

// unpack has the body of a push read as it is: JGit packs small ones.
func unpack(r *http.Request) error {
	encoding := strings.ToLower(strings.Join(r.Header.Values("Content-Encoding"), ","))
	switch encoding {
	case "", "identity":
		return nil
	case "gzip":
	default:
		return fmt.Errorf("a push in the encoding %q cannot be looked through", sbxerr.Clip(encoding))
	}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	r.Body = &unzipped{from: r.Body}
	return nil
}

// refusePush answers as a server of git does that refuses a push: git shows the body of no
// other answer to it.
func (w *writer) refusePush(u git.Updates, refused map[string]string, err error) {
	if err == nil {
		for _, update := range u.List {
			if why := refused[update.Ref]; why != "" {
				err = fmt.Errorf("the route does not allow the push to %s: %s", sbxerr.Clip(update.Ref), why)
				break
			}
		}
	} else {
		err = fmt.Errorf("the route does not pass on the push: %w", err)
	}
	report, shown := u.Report(string(sbxerr.EgressRoute), fmt.Sprintf("%s: %s", sbxerr.EgressRoute, err), refused)
	if !shown {
		w.refuse(sbxerr.WithRemedy(sbxerr.EgressRoute, "route.git", err, gitRemedy))
		return
	}
	w.use.Code, w.use.Reason = sbxerr.EgressRoute, err.Error()
	h := w.Header()
	h.Set("Content-Type", git.ReportType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Caisson-Code", string(sbxerr.EgressRoute))
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, report) // the client may be gone
}

// denied refuses an answer by which git, or a client of registries, would ask the user for a name and a password: what
// they say does not get out.
func (l *lane) denied(res *http.Response) error {
	asks := l.route.Git != nil || l.route.Registry && l.route.Credential != ""
	if !asks || res.StatusCode != http.StatusUnauthorized {
		return nil
	}
	if l.route.Credential == "" {
		return errors.New("the upstream asks for a credential, and the route has none")
	}
	return fmt.Errorf("the upstream does not take the credential %q, or it has no rights there", l.route.Credential)
}
