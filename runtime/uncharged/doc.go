// Package uncharged counts locks of files, which the kernel keeps for processes and charges
// to no cgroup.
package uncharged
