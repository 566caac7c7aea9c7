package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The bounds of a name in bytes, without the trailing dot (RFC 1035, 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// The bounds of a name that a sandbox may ask for; longer ones carry data out in
// questions. No name is reached without its being asked for.
const (
	MaxAsked       = 200 // bytes
	MaxAskedLabels = 16
)

// maxWritten bounds the text that is parsed at all, in bytes.
const maxWritten = 1024

// Name is a host name in its one canonical form: lower case, ASCII (IDNA
// A-labels), at most 253 bytes, no trailing dot, never an address. ParseName
// makes it; policy, dial and log use it as it is.
type Name string

// profile maps as UTS #46 does for a lookup. Hyphens are checked by
// checkLabel: names such as r3---sn.example.com exist.
var profile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckJoiners(true), idna.CheckHyphens(false),
	idna.StrictDomainName(true), idna.VerifyDNSLength(true), idna.Transitional(false))

// ParseName brings a host name into its canonical form, or refuses it with code
// sbxerr.NetPolicy. It refuses other text, addresses, and names that some resolvers read as
// an address (0x7f.1, 2130706433).
func ParseName(s string) (Name, error) {
	name, err := canonical(s)
	if err != nil {
		return "", sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.name", fmt.Errorf("host %q: %w", sbxerr.Clip(s), err), exampleName)
	}
	return name, nil
}

// ParseWireName is ParseName for names in protocols (DNS, HTTP Host, TLS SNI), which are
// ASCII already.
func ParseWireName(s string) (Name, error) {
	if strings.IndexFunc(s, func(r rune) bool { return r > '~' }) >= 0 {
		return "", sbxerr.New(sbxerr.NetPolicy, "policy.name", "host %q: a name on the wire is ASCII", sbxerr.Clip(s))
	}
	return ParseName(s)
}

const exampleName = "write a host name such as api.example.com"

func canonical(s string) (Name, error) {
	if err := checkWritten(s); err != nil {
		return "", err
	}
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return "", errors.New("is an address, not a name")
	}
	ascii, err := toASCII(s)
	if err != nil {
		return "", errors.New("is no host name (IDNA, UTS #46)")
	}
	name := strings.TrimSuffix(ascii, ".")
	if len(name) > maxName {
		return "", fmt.Errorf("is longer than %d bytes", maxName)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if err := checkLabel(label); err != nil {
			return "", err
		}
	}
	if numeric(labels[len(labels)-1]) {
		return "", errors.New("ends in a number, which resolvers read as an IPv4 address; write that as four decimal numbers")
	}
	return Name(name), nil
}

// toASCII leaves names to the profile that it could change in more than case.
func toASCII(s string) (string, error) {
	lower := strings.ToLower(s)
	if strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.Contains(lower, "xn--") && len(lower) == len(s) {
		return lower, nil // checkLabel does the rest
	}
	return profile.ToASCII(s)
}

// mistakes are bytes that reveal a common mistake.
var mistakes = []struct{ bytes, say string }{
	{"\x00", "holds a NUL"},
	{"\r\n\t ", "holds white space"},
	{"@", "holds a user name (@): write the host alone"},
	{"/", "holds a slash: write the host alone, not a URL"},
	{"%", "holds a percent sign: write the name decoded, an address without a zone"},
	{"*", "holds a *: a wildcard is the whole first label, as in *.example.com"},
	{"_", "holds an underscore, which host names do not have (RFC 952)"},
}

func checkWritten(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxWritten:
		return fmt.Errorf("is longer than %d bytes", maxWritten)
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	}
	for _, m := range mistakes {
		if strings.ContainsAny(s, m.bytes) {
			return errors.New(m.say)
		}
	}
	return nil
}

// checkLabel has the last word, after all mapping.
func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("has an empty label")
	case len(label) > maxLabel:
		return fmt.Errorf("has a label of more than %d bytes", maxLabel)
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("has a label that begins or ends with a hyphen")
	case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return errors.New("may hold letters, digits and hyphens only")
	}
	return nil
}

// numeric reports whether resolvers take a name that ends in label for an IPv4
// address (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// labels counts the labels of n.
func (n Name) labels() int { return strings.Count(string(n), ".") + 1 }

// parent is n without its first label, or "" where there is none.
func (n Name) parent() Name {
	_, rest, _ := strings.Cut(string(n), ".")
	return Name(rest)
}

// ownNames are those by which a sandbox means itself, besides all names below localhost
// (RFC 6761).
var ownNames = []Name{"localhost", "ip6-localhost", "ip6-loopback"}

var errOwn = errors.New("it means the sandbox's own loopback, about which there are no rules")

// remedyOwn is for whatever a rule about an own name was meant to do.
const remedyOwn = "inside, connect without a rule; to lead into the sandbox use --publish, to another sandbox --link; for a service of the host use another name, such as one of network.map"

// checkOwn refuses names that mean the sandbox itself: nobody else is asked for them.
func (n Name) checkOwn() error {
	if slices.Contains(ownNames, n) || strings.HasSuffix(string(n), ".localhost") {
		return errOwn
	}
	return nil
}

// remedyFor returns the remedy of err.
func remedyFor(err error, other string) string {
	if errors.Is(err, errOwn) {
		return remedyOwn
	}
	return other
}

// checkAsked refuses names for which no sandbox may ask.
func (n Name) checkAsked() error {
	if err := n.checkOwn(); err != nil {
		return err
	}
	if len(n) > MaxAsked || n.labels() > MaxAskedLabels {
		return fmt.Errorf("names of more than %d bytes or %d labels are never resolved", MaxAsked, MaxAskedLabels)
	}
	return nil
}

// checkExact refuses names that can be no host: a suffix under which
// registries sell names. The suffixes that companies put on the list
// themselves (github.io) may be hosts too, and so may a single label that is meant to lead to
// a private address: many sites have a host called nexus.
func (n Name) checkExact(private bool) error {
	suffix, icann := publicsuffix.PublicSuffix(string(n))
	if !icann || suffix != string(n) {
		return nil
	}
	switch single := n.labels() == 1; {
	case single && private:
		return nil
	case single:
		return fmt.Errorf("%s is a public suffix, not a host: name the host, as in www.%s; for a host of that name on your own network, write %s,private", n, n, n)
	}
	return fmt.Errorf("%s is a public suffix, not a host: name the host, as in www.%s", n, n)
}

// checkWildcard refuses a wildcard below n where nobody owns all of n. A single label that
// no registry has is the zone of a site, if the rule is private.
func (n Name) checkWildcard(private bool) error {
	const why = "below which anybody may have a name: name the hosts, or use"
	suffix, listed := publicsuffix.PublicSuffix(string(n))
	switch {
	case n.holdsSuffixes():
		return fmt.Errorf("*.%s covers public suffixes, as every name directly below %s is one, %s *.NAME.SUFFIX.%s", n, n, why, n)
	case suffix != string(n):
		return nil
	case n.labels() > 1 || listed:
		return fmt.Errorf("*.%s covers a public suffix, %s *.NAME.%s", n, why, n)
	case !private:
		return fmt.Errorf("*.%s is in no public list of names: for a zone of your own network, write *.%s,private", n, n)
	}
	return nil
}

// suffix is the public suffix of n, be it a registry's or a company's.
func (n Name) suffix() Name {
	suffix, _ := publicsuffix.PublicSuffix(string(n))
	return Name(suffix)
}

// unlisted is a label that is in no entry of the list, so that only a wildcard
// (*.compute.amazonaws.com) is about it.
const unlisted = "unlisted--label"

// holdsSuffixes reports whether the list has *.n: the names directly below n,
// but for exceptions, are public suffixes.
func (n Name) holdsSuffixes() bool {
	child := unlisted + "." + n
	return child.suffix() == child
}

// suffixBelow returns the public suffix of n if it lies below base, else "". n lies below
// base. With such a suffix the owner of base does not own n.
func (n Name) suffixBelow(base Name) Name {
	if suffix := n.suffix(); len(suffix) > len(base) { // both are ends of n
		return suffix
	}
	return ""
}
