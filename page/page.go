package page

import (
	"cmp"
	"crypto/rand"
	"embed"
	"io/fs"
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server/rest"
)

// Options are what a handler is made of.
type Options struct {
	API    http.Handler // serves the calls, for the caller that the context names
	Caller peer.Caller  // in whose name the page calls
	Token  string
	// Terminal lets the page run commands.
	Terminal bool
	// Refused is told of each request without the token. It may be nil.
	Refused func()
}

// calls are those that the page makes. They change no more than the state of a sandbox.
var calls = []string{
	caissonv1connect.EventServiceWatchProcedure,
	caissonv1connect.SandboxServiceListProcedure,
	caissonv1connect.SandboxServiceStatsProcedure,
	caissonv1connect.SandboxServiceHistoryProcedure,
	caissonv1connect.SandboxServiceLogsProcedure,
	caissonv1connect.SandboxServicePauseProcedure,
	caissonv1connect.SandboxServiceResumeProcedure,
	caissonv1connect.SandboxServiceStopProcedure,
	caissonv1connect.SandboxServiceRemoveProcedure,
	caissonv1connect.ExecServiceListProcedure,
	caissonv1connect.NetworkServiceTrafficProcedure,
	caissonv1connect.NetworkServiceCheckPolicyProcedure,
	caissonv1connect.NetworkServiceUsageProcedure,
	caissonv1connect.SecretServiceListSecretsProcedure,
	caissonv1connect.SystemServicePingProcedure,
	caissonv1connect.SystemServiceVersionProcedure,
	caissonv1connect.SystemServiceInfoProcedure,
	caissonv1connect.VolumeServiceListVolumesProcedure,
}

// terminalCalls are those of a terminal.
var terminalCalls = []string{
	caissonv1connect.ExecServiceStartProcedure,
	caissonv1connect.ExecServiceSendInputProcedure,
	caissonv1connect.ExecServiceResizeProcedure,
	caissonv1connect.ExecServiceSignalProcedure,
}

// terminalHeader says to the page that it may offer a terminal.
const terminalHeader = "Caisson-Terminal"

//go:embed assets
var assets embed.FS

var files = func() fs.FS {
	root, err := fs.Sub(assets, "assets")
	if err != nil { // embedded
		panic(err)
	}
	return root
}()

type handler struct {
	o         Options
	token     token
	procedure func(*http.Request) string
	allowed   map[string]bool
}

// New returns the handler of the page and of its calls.
func New(o Options) http.Handler {
	h := &handler{o: o, token: newToken(o.Token), procedure: rest.Procedures(), allowed: map[string]bool{}}
	for _, c := range calls {
		h.allowed[c] = true
	}
	if o.Terminal {
		for _, c := range terminalCalls {
			h.allowed[c] = true
		}
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	if err := checkHost(r.Host); err != nil {
		refuse(w, http.StatusMisdirectedRequest, err)
		return
	}
	if strings.HasPrefix(r.URL.Path, rest.Prefix) {
		h.call(w, r)
		return
	}
	if !ServeFile(w, r) {
		refuse(w, http.StatusNotFound, sbxerr.New(sbxerr.PageGuard, "page.file", "%s %q is no file of the page", sbxerr.Clip(r.Method), sbxerr.Clip(r.URL.Path)))
	}
}

// ServeFile serves a file of the page if r asks for one, and reports whether it does. Files hold
// nothing of the host, and so need no token.
func ServeFile(w http.ResponseWriter, r *http.Request) bool {
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
	st, err := fs.Stat(files, name)
	if err != nil || st.IsDir() || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	harden(w.Header())
	http.ServeFileFS(w, r, files, name)
	return true
}

// call passes a call of the page on to the API.
func (h *handler) call(w http.ResponseWriter, r *http.Request) {
	if err := checkOrigin(r); err != nil {
		refuse(w, http.StatusForbidden, err)
		return
	}
	if err := h.token.check(r); err != nil {
		if h.o.Refused != nil {
			h.o.Refused()
		}
		refuse(w, http.StatusUnauthorized, err)
		return
	}
	if procedure := h.procedure(r); !h.allowed[procedure] {
		refuse(w, http.StatusForbidden, sbxerr.New(sbxerr.PageGuard, "page.call", "%s %s is no call of the page", sbxerr.Clip(r.Method), sbxerr.Clip(r.URL.Path)))
		return
	}
	if h.o.Terminal {
		w.Header().Set(terminalHeader, "true")
	}
	out := r.Clone(peer.NewContext(r.Context(), h.o.Caller))
	out.Header.Del("Authorization")
	out.Header.Set(api.RequestIDHeader, "page-"+rand.Text()) // what the audit log tells the page's calls by
	h.o.API.ServeHTTP(w, out)
}
