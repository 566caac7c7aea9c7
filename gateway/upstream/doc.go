// Package upstream is the proxy of the operator's network through which a host has to
// leave it (network.upstream_proxy).
//
//	u, err := upstream.Compile(upstream.Spec{URL: "http://proxy.corp:3128", Except: []string{"*.corp.example"}})
//	u.Takes(policy, name, port)              // does this leave through it?
//	rest, err := u.Open(ctx, conn, target)   // ask it, on a connection to u.Host and u.Port
//
// What the internet may know goes through it: names by their form, and addresses by
// their class. It is asked by name, for it resolves names itself, and by HTTP CONNECT
// (RFC 9110, 9.3.6) or SOCKS5 (RFC 1928, 1929); all that follows is the sandbox's. What
// stays inside does not: mapped names, links, what a rule with private is about, names
// of no public suffix, and what the operator excepts.
//
// So with a proxy the gateway itself connects to no public address but that of the
// proxy, of a mapped name, or of an exception (Reserves). Where the proxy does not
// answer there is no other way.
//
// A nil *Proxy takes and reserves nothing.
package upstream
