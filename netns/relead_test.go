package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Whoever flushes the rules opens nothing: there is no way.
func TestLostRulesOpenNothingAndArePutRight(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		path := create(t)
		s := mustLead(t, path, pool)
		n := open(t, path)
		wantLed(t, n, s, "198.18.0.5:443")
		for _, f := range []family{familyV4, familyV6} {
			for _, line := range []string{"-F", "-P INPUT ACCEPT", "-P FORWARD ACCEPT", "-P OUTPUT ACCEPT"} {
				runInside(t, n, fmt.Sprintf("%s-%s -w %s", f, b, line))
			}
		}
		runInside(t, n, fmt.Sprintf("iptables-%s -w -t nat -F", b))
		for to, want := range map[string]error{
			"9.9.9.9:443":          unix.EINPROGRESS, // lo drops it
			"169.254.169.254:80":   unix.EINPROGRESS,
			"[2001:db8::1]:80":     unix.EINPROGRESS,
			"198.18.0.5:443":       unix.ECONNREFUSED, // its own stack, on which nobody listens
			"198.18.0.5:1":         unix.ECONNREFUSED,
			"198.19.255.255:65535": unix.ECONNREFUSED,
		} {
			if err := connectInside(t, n, to, false); !errors.Is(err, want) {
				t.Errorf("connect to %s without rules = %v; want %v", to, err, want)
			}
		}
		diffs, err := Check(path, &Gate{Prefixes: []netip.Prefix{pool}})
		if err != nil || len(diffs) != 11 { // five rules and six policies
			t.Errorf("Check = %d: %v, %v; want every rule and policy", len(diffs), diffs, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := mustLead(t, path, pool)
		wantNoDifference(t, path, pool)
		wantLed(t, n, again, "198.18.0.5:443")
		for probe, answered := range answers(t, n) {
			if answered {
				t.Errorf("%s to the pool is answered", probe)
			}
		}
	})
}

func TestLeadAgain(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		s := mustLead(t, path, pool, one)
		n := open(t, path)
		wantLed(t, n, s, "198.18.0.5:443") // and is closed from the gateway's side, which keeps its port for a while
		if _, err := Lead(path, Gate{Prefixes: []netip.Prefix{pool}}); !errors.Is(err, unix.EADDRINUSE) || sbxerr.Of(err) != sbxerr.Network {
			t.Errorf("Lead while the sockets are open = %v", err)
		}
		if err := connectInside(t, n, "198.18.0.5:443", false); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("connect after a Lead that failed = %v; want %v", err, unix.ENETUNREACH)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := mustLead(t, path, office, pool)
		wantLed(t, n, again, "198.18.0.5:443")
		wantLed(t, n, again, "10.1.0.1:443")
		if err := connectInside(t, n, "192.0.2.7:80", false); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to what is not led any more = %v; want %v", err, unix.ECONNREFUSED)
		}
		wantNoDifference(t, path, office, pool)
	})
}

func TestRelead(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		path := create(t)
		s := mustLead(t, path, pool, one)
		n := open(t, path)
		if err := Relead(path, Gate{Prefixes: []netip.Prefix{office, pool}}); err != nil {
			t.Fatal(err)
		}
		wantLed(t, n, s, "10.1.0.1:22")
		wantLed(t, n, s, "198.18.0.5:443")
		if err := connectInside(t, n, "192.0.2.7:80", false); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to what is not led any more = %v; want %v", err, unix.ECONNREFUSED)
		}
		wantNoDifference(t, path, office, pool)
		if err := Relead(path, Gate{}); err != nil {
			t.Fatal(err)
		}
		wantNoDifference(t, path)
	})
}

// Many are led at once: the commands wait for each other's lock, and no rule
// lands in another's namespace.
//
//caisson:host an emulated processor is too slow for many at once
func TestLeadManyAtOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		const many = 16
		start := time.Now()
		paths, errs := make([]string, many), make(chan error, many)
		for i := range paths {
			paths[i] = create(t)
		}
		for i := range paths {
			own := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)
			go func() {
				s, err := Lead(paths[i], Gate{Prefixes: []netip.Prefix{own}})
				if err == nil {
					err = s.Close()
				}
				errs <- err
			}()
		}
		for range paths {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		t.Logf("%d at once took %s", many, time.Since(start))
		for i, path := range paths {
			wantNoDifference(t, path, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16))
		}
	})
}

// BenchmarkLead measures what a gate costs beside the namespace itself.
func BenchmarkLead(b *testing.B) {
	needRoot(b)
	gate := Gate{Prefixes: []netip.Prefix{pool}}
	for _, backend := range []backend{backendNFT, backendLegacy} {
		b.Run(string(backend), func(b *testing.B) {
			useCommands(b, commandsFor(backend))
			for b.Loop() {
				b.StopTimer()
				path := newPath(b)
				if err := Create(path); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				s, err := Lead(path, gate)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = s.Close()
				if err := Remove(path); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run(string(backend)+" check", func(b *testing.B) {
			useCommands(b, commandsFor(backend))
			path := create(b)
			mustLead(b, path, pool)
			for b.Loop() {
				if _, err := Check(path, &gate); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(string(backend)+" relead", func(b *testing.B) {
			useCommands(b, commandsFor(backend))
			path := create(b)
			mustLead(b, path, pool)
			for i := 0; b.Loop(); i++ {
				if err := Relead(path, Gate{Prefixes: [][]netip.Prefix{{pool, office}, {pool}}[i%2]}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
