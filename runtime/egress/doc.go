// Package egress keeps caisson-gateway running, the process by which all that
// sandboxes send out goes, and is the daemon's way to it.
//
// The daemon holds what must outlive that process: each sandbox's sockets, its
// policy, and the names that it was given addresses for. A gateway that ends,
// or gives no answer, is replaced, and the next one gets all of it before it
// accepts anything. In between nothing gets out: new connections wait in the
// sockets, which stay open here, and those that were carried are gone.
//
// Ports of the host that lead into a sandbox (Publish) are the same the other way
// round. The gateway cannot enter namespaces: it asks for sockets that were opened
// inside, and gets them a batch at a time, so often and no more.
//
// The gateway parses hostile bytes and is not believed: what it reports is
// bounded and checked (gateway/control), about sandboxes that exist, and has
// no say in anything but records, counters, and what a name's address is.
package egress
