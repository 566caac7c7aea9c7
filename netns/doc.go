// Package netns makes the network namespaces of sandboxes.
//
// # Lifecycle
//
//	err := netns.Create(path)                      // a namespace with only lo, bound to path
//	mended, err := netns.Program(path)             // modes allow and open: the rules
//	sockets, err := netns.InstallRedirect(path, r) // modes allow and open: the way to the gateway
//	diffs, err := netns.Check(path, &r)            // what is there is what was declared
//	// the OCI runtime joins the namespace by path
//	err = netns.Remove(path)                       // idempotent; absent is success
//
// In the place of Create and Program, Stock.Take hands out a namespace that has its rules.
//
// The namespace is bound to a file in the sandbox's directory, so it outlives
// both the thread that made it and the daemon, and is removed by its name
// alone. Whoever needs to do something inside opens it:
//
//	ns, err := netns.Open(path)
//	defer ns.Close()
//	err = ns.Do(func() error { … })
//
// # Why nothing gets out
//
// The namespace is owned by the host's user namespace, not by the sandbox's:
// even root inside the sandbox may not configure it. It holds the loopback
// device and nothing else: there is no veth, no route and no address to reach
// anything from, so there is also no rule that could be lost. Mode none
// therefore programs no iptables, and Check looks at links, routes,
// addresses, sysctls and the owner instead.
//
// # The redirect
//
// In the modes allow and open the way out is sockets of the gateway that were
// opened in the namespace (InstallRedirect). Local routes say which addresses lead to
// them, and the rules send TCP to these on to the sockets. All else is dropped
// but for loopback, in IPv4 and IPv6: with a local route alone, the sandbox's
// own stack would answer UDP and ICMP in the place of the whole internet.
//
// The rules are the same for every sandbox. What changes with the policy are
// the routes, so a change runs no command and is done in less than a
// millisecond. Losing all rules opens nothing: without them connections end at
// the sandbox's own stack.
//
// They are data (rules.go), programmed with go-iptables, for nft and for legacy. What is in
// force is compared with them (secure.go): once as the commands list it, later by a digest of
// what the kernel tells (digest.go).
//
// # The mode bridge
//
//	b, err := netns.NewBridge(config)
//	mended, err := b.Attach(path, number)    // a link from the namespace to the host's
//	diffs, err := b.Check(path, number)
//	sent, received, err := b.Bytes(number)
//	err = b.Detach(number)                   // idempotent; the last one leaves nothing
//
// It is the only thing here that changes the host's own namespace. The rules are
// data (bridgerules.go) and say how they fail closed.
//
// # Threads
//
// A network namespace belongs to a thread, and Go moves goroutines between
// threads. All work in a foreign namespace runs on a thread of its own that is
// locked to one goroutine and never given back: when the goroutine ends, Go
// ends the thread, and no other goroutine can ever find itself in a sandbox's
// namespace. The main thread is never used, because Go cannot end it.
package netns
