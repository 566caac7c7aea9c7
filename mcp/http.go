package mcp

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// firstStateless is the first version of the protocol without sessions: there a call
// ends with its request.
const firstStateless = "2026-07-28"

// Handler serves the tools by streamable HTTP to all who have the token. Requests of
// another site's pages and to another host name are refused.
//
// https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
func (s *Server) Handler(token string) http.Handler {
	server := func(*http.Request) *sdk.Server { return s.mcp }
	sessions := sdk.NewStreamableHTTPHandler(server, nil)
	calls := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= firstStateless {
			calls.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
	verify := func(_ context.Context, given string, _ *http.Request) (*auth.TokenInfo, error) {
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{}, nil
	}
	h = auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h)
	return http.NewCrossOriginProtection().Handler(h)
}
