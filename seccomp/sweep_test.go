//go:build cgo

package seccomp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sweep puts each value into one argument of one call.
type sweep struct {
	call   string
	args   [6]uint64 // the other arguments
	index  int
	values []uint64
	format string
}

func span(from, to uint64) []uint64 {
	var out []uint64
	for v := from; v <= to; v++ {
		out = append(out, v)
	}
	return out
}

// bitValues are 0, each single bit and all.
func bitValues() []uint64 {
	out := []uint64{0}
	for bit := range 64 {
		out = append(out, 1<<bit)
	}
	return append(out, ^uint64(0))
}

// sweeps go through every argument that a rule looks at.
func sweeps() []sweep {
	const octal, hex = "%#o", "%#x"
	create := uint64(unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC)
	modes := append(span(0, 0o7777), 1<<16|0o644, 1<<32|0o644, 1<<16|0o4755, 1<<32|0o2755)
	var nodes []uint64
	for kind := range uint64(16) {
		nodes = append(nodes, kind<<12|0o644, kind<<12|0o2755, kind<<12|0o4755)
	}
	requests := append(span(0x5400, 0x54ff), 0x1_0000_5412, 0xffffffff_0000_541c, 0xdead_0000_5423, 0xdead_0000_5401, 0x8905, 0x40049409)
	options := append(span(0, 100), unix.PR_SET_VMA, unix.PR_GET_AUXV, unix.PR_SET_PTRACER, 1<<32|unix.PR_SET_MM, 1<<32|unix.PR_SET_NAME)
	out := []sweep{
		{call: "clone", values: bitValues(), format: hex},
		{call: "fcntl", index: 1, values: append(append(span(0, 50), span(1020, 1040)...), 2047, 2048, 1<<32|37), format: "%d"},
		{call: "personality", values: append(bitValues(), 8, 0x20000, 0x20008, 0x40008, bits32), format: hex},
		{call: "prlimit64", values: append(bitValues(), bits32), format: hex},
		{call: "ioctl", index: 1, values: requests, format: hex},
		{call: "prctl", values: options, format: "%d"},
		{call: "prctl", args: [6]uint64{unix.PR_SET_SECCOMP}, index: 1, values: append(span(0, 8), 1<<32|2), format: "%d"},
		{call: "prctl", args: [6]uint64{unix.PR_CAP_AMBIENT}, index: 1, values: span(0, 8), format: "%d"},
		{call: "arch_prctl", values: slices.Concat(span(0x1000, 0x1030), span(0x2000, 0x2004), span(0x3000, 0x3004), span(0x4000, 0x4004), span(0x5000, 0x5006)), format: hex},
		{call: "seccomp", values: span(0, 8), format: "%d"},
		{call: "seccomp", args: [6]uint64{1}, index: 1, values: append(span(0, 255), bitValues()...), format: hex},
		{call: "madvise", index: 2, values: append(span(0, 130), 1<<32|12, 1<<32|4), format: "%d"},
		{call: "chmod", index: 1, values: modes, format: octal},
		{call: "fchmod", index: 1, values: modes, format: octal},
		{call: "fchmodat", index: 2, values: modes, format: octal},
		{call: "creat", index: 1, values: modes, format: octal},
		{call: "open", index: 2, args: [6]uint64{0, create}, values: modes, format: octal},
		{call: "open", index: 1, args: [6]uint64{0, 0, 0o4755}, values: bitValues(), format: hex},
		{call: "openat", index: 3, args: [6]uint64{0, 0, create}, values: modes, format: octal},
		{call: "openat", index: 2, args: [6]uint64{0, 0, 0, 0o2755}, values: bitValues(), format: hex},
		{call: "mknod", index: 1, values: nodes, format: octal},
		{call: "mknodat", index: 2, values: nodes, format: octal},
		{call: "setsockopt", index: 1, args: [6]uint64{0, 0, 1}, values: append(span(0, 600), 1<<32|6), format: "%d"},
		{call: "setsockopt", index: 2, args: [6]uint64{0, unix.IPPROTO_TCP}, values: append(span(0, 80), 1<<32|31), format: "%d"},
		{call: "setsockopt", index: 2, args: [6]uint64{0, unix.SOL_SOCKET}, values: append(span(0, 140), 1<<32|26), format: "%d"},
		{call: "setsockopt", index: 2, args: [6]uint64{0, unix.IPPROTO_IPV6}, values: append(span(0, 140), 1<<32|6), format: "%d"},
		{call: "setsockopt", index: 1, args: [6]uint64{0, 0, unix.TCP_ULP}, values: span(0, 600), format: "%d"},
	}
	for family := range uint64(47) {
		for kind := range uint64(16) {
			out = append(out, sweep{call: "socket", args: [6]uint64{family, kind}, index: 2, values: span(0, 300), format: "%d"},
				sweep{call: "socketpair", args: [6]uint64{family, kind}, index: 2, values: span(0, 22), format: "%d"})
		}
	}
	return out
}

// TestSweep keeps what the compiled filters do on every number up to 600, with
// arguments of all zeros and all ones, and on every sweep.
func TestSweep(t *testing.T) {
	for _, v := range variants() {
		if v.Arch != "amd64" {
			continue // the arguments' rules are the same; TestTable has the names
		}
		t.Run(v.String(), func(t *testing.T) {
			m := compile(t, v)
			golden(t, "sweep/"+v.String()+".golden", numbersText(t, m, v)+sweepsText(t, m))
		})
	}
}

// numbersText has what this libseccomp does not know as the rules say it, so that one
// file holds for all versions; TestFilterMeansTheRules has checked it.
func numbersText(t *testing.T, m machine, v variant) string {
	names := map[int]string{}
	for _, c := range calls(t, v.Arch) {
		names[c.number] = c.name
	}
	ones := [6]uint64{}
	for i := range ones {
		ones[i] = ^uint64(0)
	}
	var text strings.Builder
	for number := range 601 {
		name := names[number]
		if name == "" {
			name = "-"
		}
		zeros, all := m.run(t, auditArch[v.Arch], number, [6]uint64{}), m.run(t, auditArch[v.Arch], number, ones)
		if slices.Contains(m.Skipped, name) {
			zeros, all = v.ruling(name).decide([6]uint64{}), v.ruling(name).decide(ones)
		}
		fmt.Fprintf(&text, "%d %s %s %s\n", number, name, zeros, all)
	}
	return text.String()
}

// sweepsText writes neighbours of one verdict as a range, and leaves out sweeps that
// are refused throughout: of 752 kinds of sockets few are not.
func sweepsText(t *testing.T, m machine) string {
	numbers := map[string]int{}
	for _, c := range calls(t, "amd64") {
		numbers[c.name] = c.number
	}
	var text strings.Builder
	for _, s := range sweeps() {
		line, plain := "", true
		for i := 0; i < len(s.values); {
			from, what := i, s.run(t, m, numbers[s.call], i)
			for i < len(s.values) && s.run(t, m, numbers[s.call], i) == what {
				i++
			}
			plain = plain && what == refused
			line += " " + fmt.Sprintf(s.format, s.values[from])
			if i-1 > from {
				line += ".." + fmt.Sprintf(s.format, s.values[i-1])
			}
			line += "=" + string(what)
		}
		if !plain || !strings.HasPrefix(s.call, "socket") {
			fmt.Fprintf(&text, "%s%#x arg %d:%s\n", s.call, s.args, s.index, line)
		}
	}
	return text.String()
}

func (s sweep) run(t *testing.T, m machine, number, i int) verdict {
	args := s.args
	args[s.index] = s.values[i]
	return m.run(t, unix.AUDIT_ARCH_X86_64, number, args)
}
