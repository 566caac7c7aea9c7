package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// chatPath is where chat completions are asked for, below any base URL.
const chatPath = "/chat/completions"

// ask has a request for a stream of chat completions ask for its usage. One that is too long,
// or packed, stays as it is.
func (w *writer) ask(r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, chatPath) || r.Header.Get("Content-Encoding") != "" || r.ContentLength > tokens.MaxAsked {
		return
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, tokens.MaxAsked+1))
	w.checkRead(err)
	if err != nil || len(read) > tokens.MaxAsked {
		r.Body = replaced{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
		return
	}
	read, w.unasked = tokens.Ask(read)
	r.Body = replaced{bytes.NewReader(read), r.Body}
	r.ContentLength = int64(len(read))
	r.Header.Del("Content-Length")
	r.TransferEncoding = nil
}

// checkRead ends the request if its body broke off. A budget that is spent shows again where the
// body is read on.
func (w *writer) checkRead(err error) {
	if err != nil && w.spent.Load() == nil {
		w.use.Code, w.use.Reason = sbxerr.Canceled, "the request broke off"
		panic(http.ErrAbortHandler)
	}
}

// replaced is a body in another one's place.
type replaced struct {
	io.Reader
	io.Closer
}

// measured counts the tokens of an answer.
func (l *lane) measured(w *writer, res *http.Response, from io.Reader) io.Reader {
	if !l.route.Tokens || res.StatusCode != http.StatusOK {
		return from
	}
	kind := res.Header.Get("Content-Type")
	if w.meter = tokens.NewMeter(from, kind); w.meter == nil {
		return from
	}
	if w.unasked && strings.HasPrefix(strings.ToLower(kind), "text/event-stream") {
		res.Header.Del("Content-Length")
		res.ContentLength = -1
		return tokens.Unasked(w.meter)
	}
	return w.meter
}

// pass counts bytes of bodies. Its error ends the request.
func (w *writer) pass(n int) error {
	err := w.billed.Pass(n)
	if spent := (*budget.Spent)(nil); errors.As(err, &spent) {
		w.spent.Store(spent)
	}
	return err
}

// settle counts what the request took.
func (w *writer) settle(r *policy.Routed) {
	a := budget.Amount{Requests: 1}
	if w.meter != nil {
		var estimated bool
		w.use.Model = w.meter.Model()
		w.use.Tokens, estimated = w.meter.Count(w.sent.Load())
		w.use.Micros, w.use.Estimated = r.Prices.Cost(w.use.Model, w.use.Tokens), estimated
		if a.Tokens, a.Micros = w.use.Tokens, w.use.Micros; estimated {
			a.Estimated = 1
		}
	}
	w.billed.End(a)
}

// refuseSpent says that a budget is used up. Clients of models understand their own form, and
// ask again without X-Should-Retry.
func (w *writer) refuseSpent(r *policy.Routed, err error) {
	if !r.Tokens {
		w.refuse(sbxerr.WithRemedy(sbxerr.Budget, "route.budget", err, ""))
		return
	}
	w.use.Code, w.use.Reason = sbxerr.Budget, err.Error()
	var answer struct {
		Type  string `json:"type"`
		Error struct {
			Type    string  `json:"type"`
			Code    string  `json:"code"`
			Param   *string `json:"param"`
			Message string  `json:"message"`
		} `json:"error"`
	}
	answer.Type = "error"
	answer.Error.Type, answer.Error.Code, answer.Error.Message = "rate_limit_error", "budget_exceeded", err.Error()
	text, _ := json.Marshal(answer) // of strings alone
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/json")
	h.Set("X-Caisson-Code", string(sbxerr.Budget))
	h.Set("X-Should-Retry", "false")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(text) // the client may be gone
}
