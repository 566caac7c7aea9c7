// Package ports holds the ports of the host at which sandboxes are reached: what
// may be asked for, and the listeners.
//
// A listener belongs to the daemon, so it outlives the gateway that accepts on
// it, and is closed when its sandbox goes. Nothing is ever accepted here.
package ports
