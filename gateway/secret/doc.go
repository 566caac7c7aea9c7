// Package secret holds the credentials that routes put into requests. Their values, and every
// form of them that a request or a mask needs, lie in memory outside of Go's heap that is
// locked and, where the kernel can, hidden from all other processes.
//
// A Value cannot be printed, compared or encoded: it is used by asking for the text of a
// header. That text points into the locked memory, so net/http keeps no copy of it for each
// request. It may be used until the Value is released.
package secret
