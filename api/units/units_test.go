package units

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"1":                   1,
		"1048576":             1 << 20,
		"512M":                512 << 20,
		"512m":                512 << 20,
		"512MB":               512 << 20,
		"512MiB":              512 << 20,
		"64Mi":                64 << 20,
		"1.5G":                3 << 29,
		"0.5K":                512,
		"1.50G":               3 << 29,
		"2T":                  2 << 40,
		"100b":                100,
		"1.3G":                1395864371, // 1395864371.2 cut down, never up
		"0.0009765625K":       1,
		"9223372036854775807": math.MaxInt64,
		"8388607.999999T":     9223372036853676296,
		"007":                 7,
	} {
		if got, err := ParseSize(s); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for s, want := range map[string]error{
		"":                         errEmpty,
		"0":                        errZero,
		"0.0G":                     errZero,
		"-1":                       errNegative,
		"-0":                       errNegative,
		"5XB":                      errUnit,
		"5 M":                      errUnit,
		"5Mx":                      errUnit,
		"5E":                       errUnit,
		"5µ":                       errUnit,
		"5M5":                      errNumber,
		"M":                        errNumber,
		".5G":                      errNumber,
		"5.G":                      errNumber,
		"1.2.3":                    errNumber,
		"+5M":                      errNumber,
		"1e9":                      errNumber,
		"0x10":                     errNumber,
		"1_000":                    errNumber,
		" 5M":                      errNumber,
		"1,5G":                     errNumber,
		"NaN":                      errNumber,
		"Inf":                      errNumber,
		"unlimited":                errNumber,
		"max":                      errNumber,
		"٣":                        errNumber, // digits of other scripts
		"0.0001K":                  errWhole,
		"9223372036854775808":      errOverflow,
		"99999999999999999999":     errOverflow,
		"8388608T":                 errOverflow,
		"18446744073709551615K":    errOverflow,
		"0.1234567890123456789G":   errFraction,
		strings.Repeat("1", 1<<20): errLong,
	} {
		got, err := ParseSize(s)
		checkRefusal(t, "ParseSize", s, got, err, want, "512M")
	}
}

func TestParseCPU(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1000, "1.5": 1500, "0.25": 250, "0.001": 1, "2.000000": 2000, "64": 64000, "1.50": 1500,
		"9223372036854775.807": math.MaxInt64,
	} {
		if got, err := ParseCPU(s); got != want || err != nil {
			t.Errorf("ParseCPU(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseCPURefuses(t *testing.T) {
	for s, want := range map[string]error{
		"": errEmpty, "0": errZero, "0.000": errZero, "-1": errNegative, "-0.5": errNegative,
		"0.0001": errMilli, "1.2345": errMilli, "NaN": errNumber, "Inf": errNumber, "1e3": errNumber,
		"all": errNumber, "1500m": errNumber, "1.": errNumber, ".5": errNumber, "1 ": errNumber,
		"9223372036854775.808": errOverflow, "18446744073709551616": errOverflow,
		strings.Repeat("0", 33): errLong,
	} {
		got, err := ParseCPU(s)
		checkRefusal(t, "ParseCPU", s, got, err, want, "1.5")
	}
}

func checkRefusal(t *testing.T, f, s string, got int64, err, want error, example string) {
	t.Helper()
	if got != 0 || !errors.Is(err, want) || sbxerr.Of(err) != sbxerr.Limits {
		t.Errorf("%s(%.40q) = %d, %v; want 0 and %v under %s", f, s, got, err, want, sbxerr.Limits)
		return
	}
	if !strings.Contains(err.Error(), example) || len(err.Error()) > 250 {
		t.Errorf("%s(%.40q): %q has no example %q, or is too long", f, s, err, example)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{1: "1", 1000: "1000", 1024: "1K", 512 << 20: "512M", 3 << 29: "1536M", 1 << 40: "1T", 1<<20 + 1: "1048577"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q; want %q", n, got, want)
		}
	}
}

// Whatever is accepted is positive, and formats to something that means the
// same; whatever is refused has the code.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"512M", "1.5G", "64Mi", "1048576", "0", "-1", "5XB", "", "9223372036854775807", "NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if n != 0 || sbxerr.Of(err) != sbxerr.Limits {
				t.Fatalf("ParseSize(%q) = %d, %v", s, n, err)
			}
			return
		}
		if n <= 0 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if again, err := ParseSize(FormatSize(n)); again != n || err != nil {
			t.Fatalf("ParseSize(FormatSize(%d)) = %d, %v", n, again, err)
		}
	})
}

func FuzzParseCPU(f *testing.F) {
	for _, s := range []string{"1", "1.5", "0.001", "0", "-1", "1e3", "", "NaN", "9223372036854775.807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseCPU(s)
		if (err == nil) != (n > 0) || err != nil && sbxerr.Of(err) != sbxerr.Limits {
			t.Fatalf("ParseCPU(%q) = %d, %v", s, n, err)
		}
	})
}
