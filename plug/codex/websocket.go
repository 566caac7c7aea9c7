package codex

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/coder/websocket"
)

// Handler serves each Codex that dials it over a websocket. A session outlives its
// connection by 30 s: Codex comes back to it, and reads on after the last event that it got.
type Handler struct {
	*executor
	ctx   context.Context //nolint:containedctx // the life of the handler, not of a call
	end   context.CancelFunc
	token string
}

// NewHandler returns a handler for all whose address ends in ?token= and the token. Close
// ends it.
func NewHandler(o Options, token string) *Handler {
	ctx, end := context.WithCancel(context.Background())
	return &Handler{executor: newExecutor(ctx, o), ctx: ctx, end: end, token: token}
}

// Close kills the commands that run, and returns when they have ended.
func (h *Handler) Close() {
	h.end()
	h.running.Wait()
}

// ServeHTTP implements [http.Handler]. A browser sends an origin with every websocket that a
// page opens, and Codex sends none.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Origin") != "":
		http.Error(w, "caisson: a page may not open this websocket", http.StatusForbidden)
		return
	case subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("token")), []byte(h.token)) != 1:
		http.Error(w, "caisson: the address lacks ?token= and the token of this executor", http.StatusUnauthorized)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer func() { _ = ws.CloseNow() }() // there is nobody to tell
	ws.SetReadLimit(maxMessage)
	_ = h.serve(h.ctx, socket{ws, h.ctx}) // Codex goes away without a close frame
}

// socket carries a message in a frame.
type socket struct {
	ws  *websocket.Conn
	ctx context.Context //nolint:containedctx // of the handler
}

func (s socket) read() ([]byte, error) {
	_, message, err := s.ws.Read(s.ctx)
	return message, err
}

func (s socket) write(message []byte) error {
	return s.ws.Write(s.ctx, websocket.MessageText, message)
}

func (s socket) confirm() error { return s.ws.Ping(s.ctx) }

func (s socket) close() { _ = s.ws.CloseNow() } // there is nobody to tell
