package route

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/tokens"
)

// forModel returns the way to the upstream of the model that r names, in place of l. It is no
// barrier: an upstream may read another name in the same request.
func (s *Server) forModel(l *lane, w *writer, r *http.Request) (*lane, error) {
	const op = "route.model"
	if len(l.route.Models) == 0 || r.Method != http.MethodPost {
		return l, nil
	}
	if r.Header.Get("Content-Encoding") != "" {
		return l, sbxerr.WithRemedy(sbxerr.EgressRoute, op, errors.New("the body is packed, and the route goes by the model in it"), "send it without Content-Encoding")
	}
	model, read, err := tokens.ModelOf(r.Body)
	if errors.Is(err, tokens.ErrNoModel) {
		return l, sbxerr.WithRemedy(sbxerr.EgressRoute, op, err, "")
	}
	w.checkRead(err)
	r.Body = replaced{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
	turn := l.route.ModelTurn(model)
	if turn == 0 {
		return l, nil
	}
	own, err := s.lane(laneKey{w.use.Name, turn})
	if err != nil {
		return l, err
	}
	s.leave(l)
	w.takes(own)
	return own, nil
}
