package route

import (
	"fmt"
	"net/http"
	"strings"
)

// isGRPC reports whether h is of a call of gRPC, in a request or its answer.
func isGRPC(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "application/grpc")
}

// readable refuses an answer of gRPC whose messages are packed, since they cannot be looked through.
func readable(h http.Header) error {
	if encoding := h.Get("Grpc-Encoding"); encoding != "" && encoding != "identity" {
		return fmt.Errorf("the upstream answered with messages in the encoding %q, which was not asked for and cannot be looked through", encoding)
	}
	return nil
}

// held is how many bytes of a credential an answer must have before the rest is waited for. The
// messages of a call are a dialogue, as those of a WebSocket are.
func held(h http.Header) int {
	if isGRPC(h) {
		return leastHeld
	}
	return 0
}
