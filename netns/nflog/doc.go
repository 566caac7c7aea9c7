// Package nflog reads what the rules of a network namespace log: packets that they let go
// nowhere, and in the mode bridge the first one of each exchange that leaves; and, on a
// socket of its own, what the kernel has counted of an exchange when it forgets it. Who may
// configure the namespace opens the socket (package netns); whoever it is passed to reads
// from it, and can do nothing else with it.
//
// The kernel's side is the target NFLOG (iptables-extensions(8)) and nfnetlink_log
// (linux/netfilter/nfnetlink_log.h), and the events of nf_conntrack_netlink.
package nflog
