package escape

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// control says what came of the same attempt where nothing should stop it.
type control string

const (
	open      control = "open"      // it succeeded, so the sandbox is what stops it
	excepted  control = "excepted"  // it failed for a reason that is in a table
	shut      control = "shut"      // it failed: the attempt proves nothing
	elsewhere control = "elsewhere" // there is none: it would harm the host, or the test shows by itself that it can fail
)

// score is one attempt as it was judged.
type score struct {
	id, name string
	held     bool
	control  control
	reason   string // of an exception
}

// scoreboard collects what all tests found.
type scoreboard struct {
	mu     sync.Mutex
	scores []score
}

var scores scoreboard

func (b *scoreboard) add(s score) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scores = append(b.scores, s)
}

// held notes an attack of a test of its own. It is called when the test ends,
// so that whatever failed in it counts.
func held(t *testing.T, id, name string) {
	t.Helper()
	t.Cleanup(func() { scores.add(score{id: id, name: name, held: !t.Failed(), control: elsewhere}) })
}

// sections are the headings of the list of probes and the first number after
// each.
var sections = []struct {
	name string
	end  int
}{{"A", 17}, {"B", 46}, {"C", 85}, {"D", 88}, {"E", 118}, {"F", 135}, {"H", 147}, {"I", 158}}

func sectionOf(id string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "P"))
	for _, s := range sections {
		if err == nil && n < s.end {
			return s.name
		}
	}
	return "?"
}

// summary is a line for each section, and each exception with its reason.
func (b *scoreboard) summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bySection := map[string][]score{}
	var notes []string
	for _, s := range b.scores {
		bySection[sectionOf(s.id)] = append(bySection[sectionOf(s.id)], s)
		if s.control == excepted {
			notes = append(notes, fmt.Sprintf("exception %s %s: %s\n", s.id, s.name, s.reason))
		}
	}
	var out strings.Builder
	for _, section := range slices.Sorted(maps.Keys(bySection)) {
		list := bySection[section]
		count := func(is func(score) bool) (n int) {
			for _, s := range list {
				if is(s) {
					n++
				}
			}
			return n
		}
		with := func(c control) int { return count(func(s score) bool { return s.control == c }) }
		fmt.Fprintf(&out, "%s: %d probes, %d held, %d controls open, %d exceptions, %d without a control\n",
			section, len(list), count(func(s score) bool { return s.held }), with(open), with(excepted), with(elsewhere))
	}
	return out.String() + strings.Join(notes, "")
}
