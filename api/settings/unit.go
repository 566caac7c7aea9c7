package settings

import (
	"strconv"

	"github.com/caisson-run/caisson/api/units"
)

// Unit is what a limit counts.
type Unit int

// The units of limits.
const (
	Bytes Unit = iota
	CPUs       // thousandths of a CPU
	Count
)

// Parse reads what people write. Zero is refused.
func (u Unit) Parse(text string) (int64, error) {
	switch u {
	case Bytes:
		return units.ParseSize(text)
	case CPUs:
		return units.ParseCPU(text)
	}
	return units.ParseCount(text)
}

// Format writes n for people: 1024M, 1.500, 256.
func (u Unit) Format(n int64) string {
	switch {
	case u == CPUs:
		return units.FormatCPU(n)
	case u == Bytes && n > 0 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + "M"
	}
	return strconv.FormatInt(n, 10)
}
