package network

import (
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/tests/need"
)

// addrConfig asks getaddrinfo(3) of glibc with AI_ADDRCONFIG for names by family, and prints
// the first three numbers of each address, or what the error means.
const addrConfig = `use Socket qw(:DEFAULT :addrinfo);
my %means = (EAI_AGAIN, "again", EAI_NONAME, "no name", EAI_NODATA, "no address");
while (my ($family, $name) = splice @ARGV, 0, 2) {
  my ($error, @found) = getaddrinfo($name, 80, {family => {0, 0, 4, AF_INET, 6, AF_INET6}->{$family}, socktype => SOCK_STREAM, flags => AI_ADDRCONFIG});
  my %seen = map {(getnameinfo($_->{addr}, NI_NUMERICHOST))[1] => 1} @found;
  s/^198\.1[89]\..*/pool/ for my @texts = sort keys %seen;
  print "$family $name: ", $error ? $means{$error + 0} || "$error" : "@texts", "\n";
}`

// Programs of glibc find names by one family, and try again what may be there later. The
// control is the host's resolver, which says the same of the names to anybody.
func TestNamesByGlibc(t *testing.T) {
	need.Tools(t, "dpkg")
	daemon.Run(t, "image", "from-host", "glibc", "--package", "perl-base")
	t.Cleanup(func() { daemon.Run(t, "image", "rm", "glibc") })
	const broken, absent = "broken.web.example", "absent.web.example"
	host.dns.fail(broken, dnsmessage.RCodeServerFailure)
	t.Cleanup(func() { host.dns.forget(broken) })
	asks(t, "web.example", absent, broken)
	local := []string{"4 localhost: 127.0.0.1", "6 localhost: ::1", "0 ::1: ::1", "0 127.0.0.1: 127.0.0.1"}
	for mode, want := range map[string][]string{
		"none": local,
		"allow": append(local, "0 web.example: pool", "4 web.example: pool", "6 web.example: no address", "0 "+absent+": no name",
			"0 "+broken+": again", "4 "+broken+": again", "6 "+broken+": again"),
	} {
		flags := []string{"--image", "glibc"}
		if mode == "allow" {
			flags = append(flags, "--allow", "web.example", "--allow", absent, "--allow", broken)
		}
		s := create(t, flags...)
		line := []string{"exec", s.id, "--", "perl", "-e", addrConfig}
		for _, text := range want {
			question, _, _ := strings.Cut(text, ": ")
			line = append(line, strings.Fields(question)...)
		}
		r := daemon.Try(line...)
		if got := strings.Split(strings.TrimSpace(r.Stdout), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("mode %s: %q, want %q (%s)", mode, got, want, r.Stderr)
		}
	}
}
