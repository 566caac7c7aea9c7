package proxy

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// watchIdle has connections ended that carry nothing for limit, until ctx ends.
// Bytes that are spliced never come by here, so the kernel is asked when it last saw
// some.
func watchIdle(ctx context.Context, limit time.Duration, cut func(limit time.Duration)) {
	ticker := time.NewTicker(min(max(limit/8, 10*time.Millisecond), 30*time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			cut(limit)
		}
	}
}

// cutIdle ends connections without a byte for limit.
func (p *Proxy) cutIdle(limit time.Duration) {
	for _, f := range p.carriedFlows() {
		if quiet, ok := quietFor(f.client); ok && quiet >= limit {
			p.mu.Lock()
			f.cut(attempt.Idle, policy.Decision{Rule: "idle time", Reason: fmt.Sprintf("nothing was sent for %v", limit)})
			p.mu.Unlock()
		}
	}
}

func (p *Proxy) carriedFlows() []*flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	var flows []*flow
	for f := range p.flows {
		if f.carried && f.client != nil { // package net/http ends the others
			flows = append(flows, f)
		}
	}
	return flows
}

// quietFor is how long c has neither received nor sent data (tcp(7), TCP_INFO,
// in milliseconds). It is false for a connection that is closed.
func quietFor(c *net.TCPConn) (time.Duration, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *unix.TCPInfo
	var asked error
	if err := raw.Control(func(fd uintptr) {
		info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil || asked != nil {
		return 0, false
	}
	return time.Duration(min(info.Last_data_sent, info.Last_data_recv)) * time.Millisecond, true
}
