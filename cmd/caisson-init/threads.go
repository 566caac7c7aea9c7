package main

import (
	"runtime"
	"sync"
)

// threads is how many are made beside those that the Go runtime starts with, of
// which the first is idle and one waits for netlink sockets. One runs goroutines
// (GOMAXPROCS), three wait in recvmsg, waitid and ppoll, and some are on their way
// between these. Before there was ppoll, and with the first thread at work, most runs
// of the test of this ended in a dead PID 1 with 1, one in sixty with 2, none with 3;
// the rest is margin.
const threads = 8

// reserveThreads makes all threads that this process will ever need. The
// runtime keeps idle ones for ever, and kills the process when it wants one
// more in a sandbox whose commands have used up the limit of processes. It
// returns when they are idle: one that has yet to get there is of no use to a
// process that is starved by its first command.
func reserveThreads() {
	var ready, idle sync.WaitGroup
	ready.Add(threads)
	idle.Add(threads)
	release := make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread() // so that none can serve for two
			ready.Done()
			<-release
			runtime.UnlockOSThread()
			idle.Done()
		}()
	}
	ready.Wait()
	close(release)
	idle.Wait()
}
