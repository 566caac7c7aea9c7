package fromhost

import "strings"

// compareVersions orders Debian package versions, [epoch:]upstream[-revision],
// as deb-version(7) says.
func compareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	if c := compareDigits(ea, eb); c != 0 {
		return c
	}
	if c := comparePart(ua, ub); c != 0 {
		return c
	}
	return comparePart(ra, rb)
}

func splitVersion(v string) (epoch, upstream, revision string) {
	if i := strings.IndexByte(v, ':'); i >= 0 {
		epoch, v = v[:i], v[i+1:]
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		v, revision = v[:i], v[i+1:]
	}
	return epoch, v, revision
}

// comparePart compares alternating runs of non-digits and digits.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		var wa, wb, da, db string
		wa, a = cut(a, false)
		wb, b = cut(b, false)
		if c := compareWords(wa, wb); c != 0 {
			return c
		}
		da, a = cut(a, true)
		db, b = cut(b, true)
		if c := compareDigits(da, db); c != 0 {
			return c
		}
	}
	return 0
}

// cut splits s after its leading run of digits, or of anything else.
func cut(s string, digits bool) (run, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) == digits {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// compareDigits compares decimal numbers of any length; "" is 0.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return sign(len(a) - len(b))
	}
	return strings.Compare(a, b)
}

// compareWords compares non-digits: '~' before the end, letters before others.
func compareWords(a, b string) int {
	for i := 0; i < len(a) || i < len(b); i++ {
		if c := weight(a, i) - weight(b, i); c != 0 {
			return sign(c)
		}
	}
	return 0
}

func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case s[i] >= 'a' && s[i] <= 'z', s[i] >= 'A' && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
