// Package proxy carries the TCP connections of one sandbox to where its policy
// lets them go, and those that come in to the ports that it publishes (Inbound).
//
// A connection goes through these steps, each of which may end it:
//
//  1. Where did the sandbox mean to go? The original destination is an address
//     of the sandbox's pool, which means one name, or an address that a rule names.
//  2. Does the policy allow that name and port?
//  3. On ports 80 and 443: does what the client says first (HTTP Host, TLS SNI)
//     name the same host?
//  4. The name is resolved here; each address is decided on.
//  5. One of the addresses that were decided on is dialled: nothing is resolved
//     a second time. What leaves through an upstream proxy (package upstream) is
//     neither resolved nor judged by its address here: the proxy is dialled, and
//     asked to connect to the name.
//  6. The policy is asked once more: of an address that became the host's own
//     meanwhile nobody was told.
//  7. Bytes go both ways until both sides are done.
//
// From step 2 on a change of the policy ends what it does not allow any more, in
// whichever step that is.
//
// A refusal is readable: an HTTP response on port 80, a TLS alert on port 443,
// a reset on others. Every connection that is not refused by a limit alone has
// one Attempt, told when it is over.
//
// By plain HTTP, each request of a connection is compared in step 3, and written anew by package
// net/http. Where the server has ended its connection, a later request goes through steps 4 to 6
// again.
package proxy
