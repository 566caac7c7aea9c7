package peer

// Actor calls functions on a thread that has a user's rights over files and no other.
type Actor struct{ work chan func() }

// Act starts an Actor for a caller. Close ends it.
func Act(c Caller) (*Actor, error) {
	a := &Actor{work: make(chan func())}
	ready := make(chan error)
	go onThrowawayThread(func() {
		err := become(c)
		ready <- err
		if err != nil {
			return
		}
		for f := range a.work {
			f()
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return a, nil
}

// Do calls f there, and returns when it did.
func (a *Actor) Do(f func() error) (err error) {
	done := make(chan struct{})
	a.work <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

// Close ends the thread.
func (a *Actor) Close() { close(a.work) }
