// Package nflog reads the packets that the rules of a network namespace refuse and log.
// Package netns opens the socket, which takes the right to configure the namespace. Whoever
// gets the socket can read from it, and nothing else.
//
// The kernel's side is the target NFLOG (iptables-extensions(8)) and nfnetlink_log
// (linux/netfilter/nfnetlink_log.h).
package nflog
