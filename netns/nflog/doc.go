// Package nflog reads what the rules of a network namespace log about packets that they
// let go nowhere. Who may configure the namespace opens the socket (package netns);
// whoever it is passed to reads from it, and can do nothing else with it.
//
// The kernel's side is the target NFLOG (iptables-extensions(8)) and nfnetlink_log
// (linux/netfilter/nfnetlink_log.h).
package nflog
