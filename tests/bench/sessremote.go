package main

import (
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/tests/harness"
)

// remote measures short commands over TCP with TLS, and the same over the socket, by turns.
func (s *suite) remote() {
	r := harness.StartRemote(s.t, "")
	key := r.MakeKey(s.t, "boss", "--admin")
	r.Run(s.t, "create", "--name", "box")
	defer r.Run(s.t, "rm", "--force", "box")
	o, err := api.Host{URL: "tcp://" + r.Address, CA: r.CA.File, Key: key}.Options()
	if err != nil {
		s.t.Fatal(err)
	}
	far, near := api.New(o), api.Dial(r.Socket)
	defer far.Close()
	defer near.Close()
	var tls, socket times
	for i := range s.rounds*execRounds + warmRounds {
		for client, all := range map[*api.Client]*times{far: &tls, near: &socket} {
			begin := time.Now()
			if _, err := (&site{Client: client}).execTrue(s.t.Context(), "box"); err != nil {
				s.t.Fatal(err)
			}
			if i >= warmRounds {
				*all = append(*all, time.Since(begin))
			}
		}
	}
	s.r.Sessions = append(s.r.Sessions, Section{Name: "remote", Runs: []Run{
		{Name: "TLS", What: "exec /bin/true over TCP with TLS on loopback, connection kept", Took: tls.summary()},
		{Name: "socket", What: "exec /bin/true over the socket", Took: socket.summary()},
	}})
	s.r.target(atMost("exec over TCP with TLS, more than over the socket, p50", tls.summary().P50-socket.summary().P50, 0.5, "ms"))
}
