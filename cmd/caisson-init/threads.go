package main

import (
	"runtime"
	"sync"
)

// threads is how many are made beside those that the Go runtime starts with.
// One runs goroutines (GOMAXPROCS), two wait in recvmsg and waitid, and some are
// on their way between the two. With 1, most runs of the test of this ended in
// a dead PID 1, with 2 one in sixty, with 3 none; the rest is margin.
const threads = 6

// reserveThreads makes all threads that this process will ever need. The
// runtime keeps idle ones for ever, and kills the process when it wants one
// more in a sandbox whose commands have used up the limit of processes.
func reserveThreads() {
	var ready sync.WaitGroup
	ready.Add(threads)
	release := make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread() // so that none can serve for two
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		}()
	}
	ready.Wait()
	close(release)
}
