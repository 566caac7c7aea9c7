// Package units reads the sizes and CPU counts that people write, for the client and the
// daemon alike. Its functions are pure, exact (no floating point) and strict: they refuse what
// they do not understand, and zero, which other tools read as "unlimited".
package units

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxInput bounds what is parsed and quoted back; no sensible value is longer.
const maxInput = 32

// maxFraction is how many digits may follow the point: 10^18 still fits uint64.
const maxFraction = 18

// sizeUnits are powers of 1024 with and without the i, as the container tools
// read them: 512M is 512 MiB.
var sizeUnits = map[string]uint64{
	"": 1, "B": 1,
	"K": 1 << 10, "KB": 1 << 10, "KI": 1 << 10, "KIB": 1 << 10,
	"M": 1 << 20, "MB": 1 << 20, "MI": 1 << 20, "MIB": 1 << 20,
	"G": 1 << 30, "GB": 1 << 30, "GI": 1 << 30, "GIB": 1 << 30,
	"T": 1 << 40, "TB": 1 << 40, "TI": 1 << 40, "TIB": 1 << 40,
}

// The reasons of a refusal. Each is completed by an example of what is meant.
var (
	errEmpty    = errors.New("it is empty")
	errLong     = fmt.Errorf("it is longer than %d characters", maxInput)
	errZero     = errors.New("zero is refused: it never means unlimited")
	errNegative = errors.New("it is negative")
	errOverflow = errors.New("it is too large")
	errNumber   = errors.New("it is not a plain decimal number")
	errUnit     = errors.New("its unit is unknown")
	errFraction = fmt.Errorf("it has more than %d digits after the point", maxFraction)
	errWhole    = errors.New("it is less than one byte")
	errMilli    = errors.New("it is finer than 0.001")
)

// ParseSize reads a size such as "512M", "1.5G", "64Mi" or "1048576" and
// returns bytes. Units are powers of 1024 in any case; part of a byte is cut
// off, so the result is never more than what was written. The code of every
// refusal is sbxerr.Limits.
func ParseSize(s string) (int64, error) {
	n, err := parseSize(s)
	if err != nil {
		return 0, refuse("units.parse_size", "size", s, err, "512M, 1.5G or 1048576")
	}
	return n, nil
}

// ParseCPU reads a number of CPUs such as "1", "1.5" or "0.25" and returns
// thousandths of a CPU. Anything finer than a thousandth is refused. The code
// of every refusal is sbxerr.Limits.
func ParseCPU(s string) (int64, error) {
	n, err := parseCPU(s)
	if err != nil {
		return 0, refuse("units.parse_cpu", "CPU count", s, err, "1, 1.5 or 0.25")
	}
	return n, nil
}

// FormatSize writes n bytes the shortest way that ParseSize reads back as n.
func FormatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "T"}, {1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatCPU writes thousandths of a CPU with all three digits: 1.500.
func FormatCPU(milli int64) string { return fmt.Sprintf("%d.%03d", milli/1000, milli%1000) }

// ParseCount reads a whole number above 0. The code of every refusal is sbxerr.Limits.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, sbxerr.New(sbxerr.Limits, "units.parse_count", "%q is not a positive count, give one such as 256", s)
	}
	return n, nil
}

func parseSize(s string) (int64, error) {
	end := strings.LastIndexFunc(s, func(r rune) bool { return r == '.' || '0' <= r && r <= '9' }) + 1
	unit, ok := sizeUnits[strings.ToUpper(s[end:])]
	n, err := parseDecimal(s[:end])
	switch {
	case len(s) > maxInput:
		return 0, errLong
	case s == "":
		return 0, errEmpty
	case err != nil:
		return 0, err
	case !ok:
		return 0, errUnit
	}
	bytes, rest, err := n.times(unit)
	switch {
	case err != nil:
		return 0, err
	case bytes == 0 && rest:
		return 0, errWhole
	case bytes == 0:
		return 0, errZero
	}
	return bytes, nil
}

func parseCPU(s string) (int64, error) {
	n, err := parseDecimal(s)
	switch {
	case len(s) > maxInput:
		return 0, errLong
	case s == "":
		return 0, errEmpty
	case err != nil:
		return 0, err
	}
	milli, rest, err := n.times(1000)
	switch {
	case err != nil:
		return 0, err
	case rest:
		return 0, errMilli
	case milli == 0:
		return 0, errZero
	}
	return milli, nil
}

// decimal is whole + fraction/scale, exactly.
type decimal struct{ whole, fraction, scale uint64 }

// parseDecimal accepts digits with at most one point that has a digit on its
// left. Signs, exponents, underscores, "Inf" and "NaN" are not plain numbers.
func parseDecimal(s string) (decimal, error) {
	if strings.HasPrefix(s, "-") {
		return decimal{}, errNegative
	}
	whole, fraction, point := strings.Cut(s, ".")
	if !digits(whole) || point && !digits(fraction) {
		return decimal{}, errNumber
	}
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > maxFraction {
		return decimal{}, errFraction
	}
	n := decimal{scale: 1}
	var err error
	if n.whole, err = strconv.ParseUint(whole, 10, 64); err != nil {
		return decimal{}, errOverflow // digits only: nothing else can be wrong
	}
	for _, d := range fraction {
		n.fraction = n.fraction*10 + uint64(d-'0')
		n.scale *= 10
	}
	return n, nil
}

// times returns n*unit rounded down, and whether anything was cut off.
func (n decimal) times(unit uint64) (result int64, rest bool, err error) {
	over, whole := bits.Mul64(n.whole, unit)
	if over != 0 {
		return 0, false, errOverflow
	}
	// fraction < scale, so the quotient is below unit and Div64 cannot overflow.
	hi, lo := bits.Mul64(n.fraction, unit)
	part, remainder := bits.Div64(hi, lo, n.scale)
	sum, carry := bits.Add64(whole, part, 0)
	if carry != 0 || sum > math.MaxInt64 {
		return 0, false, errOverflow
	}
	return int64(sum), remainder != 0, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func refuse(op, what, s string, reason error, examples string) error {
	if len(s) > maxInput {
		s = s[:maxInput] + "…"
	}
	return sbxerr.New(sbxerr.Limits, op, "parse %s %q: %w; write for example %s", what, s, reason, examples)
}
