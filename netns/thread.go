package netns

import (
	"errors"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// errAborted is what a caller sees when its function ended its goroutine
// (runtime.Goexit, which t.FailNow calls) instead of returning.
var errAborted = errors.New("the function ended its goroutine instead of returning")

// onThread runs fn on an OS thread that nothing else runs on afterwards: it is
// never unlocked, so Go ends it with the goroutine.
//
// The main thread is the exception: Go parks it for good instead of ending
// it. Left in a sandbox's namespace it would keep that namespace alive, and
// /proc/<pid>/ns/net of the daemon would show it. So if the goroutine lands
// there it only holds the main thread while another one does the work.
func onThread(fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		err := errAborted
		defer func() { errc <- err }()
		goruntime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err = onThread(fn)
			goruntime.UnlockOSThread()
			return
		}
		err = fn()
	}()
	return <-errc
}
