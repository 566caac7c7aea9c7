package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Row is one line of a profile as `caisson spec --seccomp` shows it.
type Row struct {
	Syscalls  []string
	Action    string // "allow", "kill" or the name of the error, such as "EPERM"
	Condition string // empty: unconditional
	Why       string
}

// Rows returns p under o for people: its rules in order, then the notable calls that
// no rule names, then what happens to all the rest.
func (p Profile) Rows(o Options) []Row {
	var rows []Row
	named := map[string]bool{}
	for _, r := range p.Active(o) {
		rows = append(rows, Row{slices.Clone(r.Syscalls), r.Action(), r.Condition(), r.Why})
		for _, name := range r.Syscalls {
			named[name] = true
		}
	}
	for _, d := range Denied {
		names := slices.DeleteFunc(slices.Clone(d.Syscalls), func(n string) bool { return named[n] })
		if len(names) > 0 && (d.Arch == "" || d.Arch == o.arch()) {
			rows = append(rows, Row{names, unix.ErrnoName(refusal), "", d.Why})
		}
	}
	return append(rows, restRows...)
}

// restRows end every profile: they describe what no rule can name.
var restRows = []Row{
	{[]string{"(any argument not listed above)"}, unix.ErrnoName(refusal), "",
		"a conditional rule allows what it lists and nothing else"},
	{[]string{"(any call newer than this table)"}, unix.ErrnoName(unix.ENOSYS), "",
		"runc answers for numbers above the highest named one as an older kernel would, so that programs fall back"},
	{[]string{"(any other call)"}, unix.ErrnoName(refusal), "",
		"the default: an error that programs report, not a signal"},
	{[]string{"(any call by another architecture's entry)"}, "kill", "",
		"int $0x80 and x32 reach the same kernel by numbers that the rules do not cover"},
}
