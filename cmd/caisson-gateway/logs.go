package main

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/droplog"
)

// logs are those of one sandbox: of what the rules of its namespace tell.
type logs struct {
	all    []*droplog.Log
	served sync.WaitGroup
}

// serve records until end, and says so when one fails.
func (l *logs) serve(failed func(error)) {
	for _, log := range l.all {
		l.served.Go(func() {
			if err := log.Serve(); err != nil {
				failed(err)
			}
		})
	}
}

// settle returns when all that was told is recorded; or false when the time has come.
func (l *logs) settle(latest time.Time) bool {
	settled := true
	for _, log := range l.all {
		settled = log.Settle(latest) && settled
	}
	return settled
}

// endSoon is how long what was told is read on when the sandbox goes.
const endSoon = 200 * time.Millisecond

func (l *logs) end() {
	latest := time.Now().Add(endSoon)
	for _, log := range l.all {
		log.End(latest)
	}
	l.served.Wait()
}
