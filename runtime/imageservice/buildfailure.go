package imageservice

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
)

// commandFailed says why the command of a step did not succeed. It is nil for one that did.
func commandFailed(r StepResult, w written) error {
	if r.ExitCode == 0 && !r.OOMKilled {
		return nil
	}
	text := fmt.Sprintf("the command exited with %d", r.ExitCode)
	if r.Reason != "" {
		text += fmt.Sprintf(" (%s)", r.Reason)
	}
	remedy := ""
	if u := w.by.User; u.UID != 0 {
		text += "; it ran as the user " + u.IDs()
		remedy = "look at the output of the step; where it lacks rights, put USER root before it"
	}
	return stepFailed(text, remedy, r, w)
}

// stepFailed adds to what failed in a step what the sandbox ran into, and what helps. remedy
// is for a step that ran into nothing; empty is that of the code.
func stepFailed(text, remedy string, r StepResult, w written) error {
	met := obstacles(r, w)
	if len(met) == 0 {
		err := errors.New(text)
		if remedy == "" {
			return sbxerr.Wrap(sbxerr.BuildFailed, "images.build", err)
		}
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "images.build", err, remedy)
	}
	var remedies []string
	for _, o := range met {
		text += "; " + o.what
		if !slices.Contains(remedies, o.remedy) {
			remedies = append(remedies, o.remedy)
		}
	}
	return sbxerr.WithRemedy(sbxerr.BuildFailed, "images.build", errors.New(text), strings.Join(remedies, "; "))
}

// obstacle is a limit or a rule that a step ran into.
type obstacle struct{ what, remedy string }

func obstacles(r StepResult, w written) (met []obstacle) {
	l := w.by.Limits
	if r.OOMKilled {
		met = append(met, obstacle{"it ran out of its memory of " + units.FormatSize(l.MemoryBytes), "give it more, as files that it writes count too: --memory " + units.FormatSize(2*l.MemoryBytes)})
	}
	if r.TimedOut {
		met = append(met, obstacle{"it timed out", "give it more time: --timeout"})
	}
	if isFull(w) {
		met = append(met, obstacle{"its disk of " + units.FormatSize(l.TmpfsBytes) + " was full", moreDisk(w)})
	}
	for _, point := range r.FullTmpfs {
		remedy := moreDisk(w)
		if slices.ContainsFunc(w.by.Mounts, func(m plan.MountRequest) bool { return m.Target == point && m.SizeBytes != nil }) {
			remedy = "raise size= of its --mount"
		}
		met = append(met, obstacle{"no space was left in " + point, remedy})
	}
	if r.PIDsLimitHit {
		met = append(met, obstacle{fmt.Sprintf("it reached its limit of %d processes", l.PIDs), fmt.Sprintf("give it more: --pids %d", 2*l.PIDs)})
	}
	if len(r.Refusals) > 0 {
		met = append(met, refusedNetwork(r, w))
	}
	return met
}

// isFull reports whether the disk of a step has no room left.
func isFull(w written) bool {
	dir, err := w.root.Open(".")
	if err != nil {
		return false // a hint less
	}
	defer dir.Close() // it was only read
	var st unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &st) == nil && (st.Bavail == 0 || st.Ffree == 0)
}

// moreDisk are the flags that give a step twice the room. What it writes counts as memory.
func moreDisk(w written) string {
	l := w.by.Limits
	flags := "--tmpfs " + units.FormatSize(2*l.TmpfsBytes)
	if need := 4 * l.TmpfsBytes; l.MemoryBytes < need {
		flags += " --memory " + units.FormatSize(need)
	}
	return "give it more room: " + flags
}

// allowFlag is the flag that adds a rule to a build of asked.
func allowFlag(asked plan.CreateRequest, rule string) string {
	if asked.Network == string(netns.ModeNone) {
		return "--allow " + rule + " instead of --network none"
	}
	return "--allow " + rule
}

// refusedNetwork names what the network refused, and the rules that allow it.
func refusedNetwork(r StepResult, w written) obstacle {
	var targets, flags []string
	for _, refusal := range r.Refusals {
		if refusal.Name == "" {
			return obstacle{"it tried the network, and the build has none", "allow the hosts that it needs: " + allowFlag(w.asked, "HOST")}
		}
		target := refusal.Name
		if refusal.Port != 0 {
			target = net.JoinHostPort(refusal.Name, strconv.Itoa(int(refusal.Port)))
		}
		targets = append(targets, target)
		if flag := allowFlag(w.asked, refusal.Needs); refusal.Needs != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	what := "the network refused " + strings.Join(targets, ", ")
	switch {
	case len(flags) > 0:
		return obstacle{what, "if the build needs that, allow it: " + strings.Join(flags, " ")}
	case r.Network == string(netns.ModeBridge): // which has no rules
		return obstacle{what, "caisson spec --network bridge shows the rules"}
	}
	return obstacle{what, "caisson policy check says why"}
}
