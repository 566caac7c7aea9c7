// Package uncharged reads how much the kernel holds for processes that it charges
// to no cgroup: locks of byte ranges, and sockets.
package uncharged
