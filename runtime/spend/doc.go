// Package spend keeps what the requests of sandboxes by routes took: over the end of the gateway
// that counts them, of the daemon and of the sandbox.
package spend
