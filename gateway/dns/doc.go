// Package dns is the only resolver that a sandbox has.
//
// It answers questions for A with an address of the sandbox's own: each name
// that the policy allows gets one from policy.Pool, for as long as the sandbox
// lives. A connection to that address can therefore only mean that name, and
// the real addresses never reach the sandbox. Everything else about an allowed
// name is an empty answer. A name that the policy refuses is NXDOMAIN, and one that
// a limit refuses is REFUSED, with the reason as an extended error (RFC 8914) where
// the client speaks EDNS.
//
// No question is passed on. For an allowed name the gateway asks its own
// question for addresses, so that a name that does not exist is NXDOMAIN; no
// other name causes any packet. A name that leaves through an upstream proxy is
// not asked for: it has an address whether it exists or not.
package dns
