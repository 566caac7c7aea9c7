// Package policy decides which destinations a sandbox may reach. It is pure and does no
// I/O. The same policy gives the same decision anywhere, except for the host's own addresses
// (On).
//
// # Rules
//
//	[METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque]
//
//	github.com                 one host, ports 80 and 443
//	github.com:443+22          one host, these ports
//	*.example.com              every name below example.com, not example.com itself
//	9.9.9.0/24:443             addresses, without a name; [2620:fe::/48]:443 to deny
//	db.corp:5432,private       may lead to an address that is not public
//	ssh.github.com:443,opaque  what a client says there is not read
//
// A rule that allows may not be a wildcard over a public suffix (publicsuffix.org):
// nobody owns all names below it. Where one lies further below, as s3.amazonaws.com
// below *.amazonaws.com, it and the names below it are not covered. A rule that
// denies covers every name, and all ports when it names none. Deny beats allow,
// whatever the order and however exact.
//
// # Use
//
//	p, err := policy.Compile(policy.Spec{Mode: policy.Allow, Allow: []string{"github.com"}})
//	name, err := policy.ParseName(written)    // once; this form is decided on, dialled and logged
//	d := p.Decide(name, 443)                  // may this name be connected to?
//	d = p.DecideResolved(name, 443, addr)     // may it be by this address?
//	d = p.DecideAddress(addr, 22)             // may this address, without a name?
//
// The zero Policy and a nil one allow nothing.
package policy
