package observe

import (
	"strings"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/usage"
)

// Past is what a [usage.Store] keeps of a sandbox beside its series, also when it is gone.
type Past struct {
	Name        string        `json:"name"`
	Image       string        `json:"image,omitempty"`
	Session     string        `json:"session,omitempty"`
	Task        string        `json:"task,omitempty"`
	Owner       uint32        `json:"owner"`
	Parent      string        `json:"parent"`
	CreatedAt   time.Time     `json:"created_at"`
	MemoryBytes int64         `json:"memory_bytes"`
	MilliCPU    int64         `json:"milli_cpu"`
	PIDs        int64         `json:"pids"`
	Last        cgroups.Usage `json:"last"`
	Point       usage.Point   `json:"point"` // of Last
	EndedAt     time.Time     `json:"ended_at"`
	Commands    []PastCommand `json:"commands,omitempty"` // the last ones, the oldest first
}

// PastCommand is what is kept of a command of a sandbox that is gone.
type PastCommand struct {
	ID          string        `json:"id"`
	Args        []string      `json:"args"`
	StartedAt   time.Time     `json:"started_at"`
	EndedAt     time.Time     `json:"ended_at"`
	StdoutBytes int64         `json:"stdout_bytes"`
	StderrBytes int64         `json:"stderr_bytes"`
	ExitCode    int           `json:"exit_code"`
	Signal      int           `json:"signal,omitempty"`
	Reason      string        `json:"reason"`
	Source      string        `json:"source"`
	Duration    time.Duration `json:"duration"`
}

// The bounds of what is kept of the commands of a sandbox that is gone.
const (
	MaxCommands = 20
	MaxArgs     = 512 // bytes of the arguments of each, with a zero byte at the end of each
)

// Beginning returns the first of args that are kept, the last one cut.
func Beginning(args []string) []string {
	var list []string
	most := MaxArgs
	for _, arg := range args {
		if len(arg) >= most {
			return append(list, strings.ToValidUTF8(arg[:most], ""))
		}
		list, most = append(list, arg), most-len(arg)-1
	}
	return list
}

// Again returns what kept has of the sandbox id that was made at the given time, and nil if it has
// nothing of it. The error is that of the store; nothing kept is none.
func Again(kept *usage.Store, id string, made time.Time) (*Earlier, error) {
	var p Past
	series, err := kept.Get(id, &p)
	if err != nil || !p.CreatedAt.Equal(made) {
		return nil, err
	}
	return &Earlier{Total{p.Last, p.Point}, series}, nil
}

// Find returns the sandbox of which ref is the name, or the beginning of the ID of at least so many
// letters. Of one name the last counts; p is nil if there is none.
func Find(kept *usage.Store, ref string, least int, sees func(Past) bool) (id string, p *Past, series *usage.Series, err error) {
	err = kept.Each(func(at string, about func(any) error) bool {
		var k Past
		if about(&k) != nil { // it was dropped meanwhile
			return true
		}
		named := k.Name == ref || len(ref) >= least && strings.HasPrefix(at, ref)
		if !named || !sees(k) {
			return true
		}
		found, err := kept.Get(at, &k)
		if err != nil {
			return true
		}
		id, p, series = at, &k, found
		return false
	})
	return id, p, series, err
}
