package pid1

import "github.com/caisson-run/caisson/initproto"

// Left is what a PID 1 left of one command, to which no daemon came back within the
// orphan grace.
type Left struct {
	Exit           *Exit  // nil: it had not ended
	Stdout, Stderr []byte // that no daemon has read
}

// DecodeEnds reads what a PID 1 left in its file of [Options].Ends, by command.
// whole says that all of it had room.
func DecodeEnds(data []byte) (commands map[uint32]Left, whole bool) {
	entries, whole := initproto.DecodeEnds(data)
	commands = map[uint32]Left{}
	for _, entry := range entries {
		left := commands[entry.Exec]
		if !left.add(entry) {
			return commands, false
		}
		commands[entry.Exec] = left
	}
	return commands, whole
}

// add reports whether the entry is one that may follow.
func (l *Left) add(entry initproto.Ended) bool {
	switch entry.Kind {
	case initproto.EndsStdout:
		l.Stdout = append(l.Stdout, entry.Data...)
	case initproto.EndsStderr:
		l.Stderr = append(l.Stderr, entry.Data...)
	case initproto.EndsExited:
		m, err := initproto.Decode(entry.Data)
		exited, ok := m.(initproto.Exited)
		if err != nil || !ok || exited.Exec != entry.Exec || l.Exit != nil {
			return false
		}
		exit := exitOf(exited)
		l.Exit = &exit
	}
	return true
}
