package escape

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// TestAttempts makes every attempt under each profile, with a network, and
// unconfined.
//
//caisson:kernel
//caisson:smoke
func TestAttempts(t *testing.T) {
	host := surround(t)
	daemon.Run(t, "run", "--allow", "web.example", "--", "true") // the daemon's own rules may need modules
	modules := loadedModules(t)
	strict := host.confined(t, "strict")
	debug := host.confined(t, "debug")
	compat := host.confined(t, "compat")
	dev := host.confined(t, "dev")
	networked := host.confined(t, "strict", "--allow", "web.example")
	if after := loadedModules(t); !bytes.Equal(modules, after) {
		t.Errorf("sandboxes made the kernel load modules:\n%s\nbefore:\n%s", after, modules)
	}
	controls := host.unconfined(t)

	t.Run("strict", func(t *testing.T) { judge(t, strict, controls) })
	t.Run("debug", func(t *testing.T) { compareProfile(t, strict, debug, debugOpens) })
	t.Run("compat", func(t *testing.T) { compareProfile(t, strict, compat, compatOpens) })
	t.Run("dev", func(t *testing.T) {
		compareProfile(t, strict, dev, rootOpens)
		holdsSetUpRights(t, dev)
	})
	t.Run("with a network", func(t *testing.T) { compareProfile(t, strict, networked, networkOpens) })
}

// loadedModules lists the names of the modules that the kernel has loaded.
func loadedModules(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("/proc/modules")
	if os.IsNotExist(err) {
		return nil // a kernel without modules
	}
	must(t, err)
	var names [][]byte
	for line := range bytes.Lines(data) {
		name, _, _ := bytes.Cut(line, []byte(" "))
		names = append(names, name)
	}
	slices.SortFunc(names, bytes.Compare)
	return bytes.Join(names, []byte("\n"))
}

// judge holds every attempt to its want, and its control to the opposite. What
// there is to attempt is the control's list: a prober that dies in a sandbox
// must not pass for one that was held.
func judge(t *testing.T, inside, controls []attempt) {
	t.Helper()
	if len(inside) != len(controls) || len(inside) < 250 {
		t.Errorf("%d attempts inside, %d unconfined", len(inside), len(controls))
	}
	for _, c := range controls {
		i := slices.IndexFunc(inside, func(a attempt) bool { return a.Attempt == c.Attempt })
		if i < 0 {
			t.Errorf("%s %s was not attempted inside", c.ID, c.Attempt)
			continue
		}
		s := score{id: c.ID, name: c.Attempt, held: slices.Contains(c.Want, inside[i].Outcome)}
		if !s.held {
			t.Errorf("%s %s: %s inside, want one of %q", c.ID, c.Attempt, inside[i].Outcome, c.Want)
		}
		s.control, s.reason = judgeControl(t, c)
		scores.add(s)
	}
	for _, e := range exceptions {
		if !slices.ContainsFunc(controls, func(c attempt) bool { return e.covers(c) }) {
			t.Errorf("the exception %q covers no attempt", e.attempt)
		}
	}
}

func judgeControl(t *testing.T, c attempt) (control, string) {
	t.Helper()
	i := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(c) && e.applies(c) })
	switch {
	case i < 0 && c.held():
		t.Errorf("%s %s: %s also unconfined: it proves nothing", c.ID, c.Attempt, c.Outcome)
		return shut, ""
	case i < 0:
		return open, ""
	case !c.held():
		t.Errorf("%s %s: %s unconfined, so the exception is not true: %s", c.ID, c.Attempt, c.Outcome, exceptions[i].reason)
		return open, ""
	}
	return excepted, exceptions[i].reason
}

// compareProfile holds a profile to what it may open beyond strict: no more,
// and no less.
func compareProfile(t *testing.T, strict, other []attempt, opens map[string]string) {
	t.Helper()
	if len(strict) != len(other) {
		t.Errorf("%d attempts, strict has %d", len(other), len(strict))
	}
	for i := range min(len(strict), len(other)) {
		s, o := strict[i], other[i]
		_, mayOpen := opens[s.Attempt]
		switch {
		case s.Attempt != o.Attempt:
			t.Fatalf("attempt %d is %q, in strict it is %q", i, o.Attempt, s.Attempt)
		case mayOpen && o.held() && slices.ContainsFunc(exceptions, func(e exception) bool { return e.covers(o) && e.applies(o) }):
			// this kernel has nothing to open
		case mayOpen && o.held():
			t.Errorf("%s %s: still %s: %s", o.ID, o.Attempt, o.Outcome, opens[s.Attempt])
		case !mayOpen && !o.held():
			t.Errorf("%s %s: %s, want one of %q", o.ID, o.Attempt, o.Outcome, o.Want)
		}
	}
	for name := range opens {
		if !slices.ContainsFunc(other, func(a attempt) bool { return a.Attempt == name }) {
			t.Errorf("there is no attempt %q", name)
		}
	}
}
