package network

import (
	"net/netip"
	"slices"
	"testing"
)

// What the namespace refuses by itself has a record all the same, with the command that
// tried it, in both modes. Outside each attempt arrives: see TestNotAllowed, TestOpen and
// TestProtocols.
//
//caisson:kernel
func TestDropLog(t *testing.T) {
	reaches(t, "web.example:80")
	for mode, args := range map[string][]string{"allow": {"--allow", "web.example"}, "open": {"--network", "open"}} {
		t.Run(mode, func(t *testing.T) {
			s := create(t, args...)
			s.try("http", "http://web.example/") // the name has an address now
			s.script(t, "./client echo "+public+":5432; ./client http http://"+metadata+"/; ./client echo '["+publicV6+"]:5432'; ./client udp web.example:443; ./client query "+elsewhere+":53 web.example A; true")
			want := []entry{
				{Kind: "connection", Address: public, Port: 5432},
				{Kind: "connection", Address: metadata, Port: 80},
				{Kind: "connection", Address: publicV6, Port: 5432},
				{Kind: "packet", Type: "udp", Name: "web.example", Port: 443},
				{Kind: "packet", Type: "udp", Address: elsewhere, Port: 53},
			}
			missing := func(list []entry) []entry {
				return slices.DeleteFunc(slices.Clone(want), func(w entry) bool {
					return slices.ContainsFunc(list, func(e entry) bool {
						return e.Kind == w.Kind && e.Type == w.Type && e.Name == w.Name && e.Address == w.Address && e.Port == w.Port &&
							e.Verdict == "refused" && e.Code == "SBX-701" && e.Rule == "mode "+mode
					})
				})
			}
			list := s.recorded(t, func(list []entry) bool { return len(missing(list)) == 0 })
			if left := missing(list); len(left) > 0 {
				t.Errorf("no records %+v in %+v", left, list)
			}
			for _, e := range list {
				if addr, err := netip.ParseAddr(e.Address); err == nil && e.Verdict == "refused" && addr.IsLoopback() {
					t.Errorf("what stays inside has the record %+v", e)
				}
			}
			var detail struct{ Egress struct{ Refused int } }
			daemon.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
			if detail.Egress.Refused != len(want) {
				t.Errorf("%d are counted, want %d", detail.Egress.Refused, len(want))
			}
			if rules := daemon.Run(t, "policy", "learn", s.id).Stdout; rules != "web.example:80\n" {
				t.Errorf("learnt %q", rules)
			}
		})
	}
}
