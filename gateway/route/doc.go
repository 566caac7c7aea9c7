// Package route serves the names NAME.caisson.internal of a sandbox: each is a reverse proxy
// to one upstream, to which the gateway adds a credential. What a client sends of its own to
// authenticate is taken out, and what an upstream gives away of the credential is masked.
//
// The route is known by the connection: the address that the client connected to. No header
// can change that.
package route
