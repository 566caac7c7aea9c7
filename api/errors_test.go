package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestExplainMany has as many reasons as one message can hold: the time must not
// grow with their square.
func TestExplainMany(t *testing.T) {
	var all []error
	for i := range 50_000 {
		all = append(all, sbxerr.New(sbxerr.Config, "a.b", "reason %d", i))
	}
	begun := time.Now()
	e := Explain(sbxerr.Wrap(sbxerr.Config, "runtime.plan", errors.Join(all...)))
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if !strings.HasPrefix(e.Message, "reason 0; reason 1; ") || !strings.HasSuffix(e.Message, "; reason 49999") {
		t.Errorf("%.100q", e.Message)
	}
}

func TestExplain(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}
	tests := []struct {
		name           string
		err            error
		code           sbxerr.Code
		message, cause string
		remedy         string // a part of it
	}{
		{"message only", sbxerr.New(sbxerr.ImageNotFound, "image.find", "no image %q", "x"),
			sbxerr.ImageNotFound, `no image "x"`, "", "image ls"},
		{"wrapped cause", sbxerr.Wrap(sbxerr.Mount, "rootfs.mount", fmt.Errorf("mount the workspace: %w", denied)),
			sbxerr.Mount, "mount the workspace", "open /x: permission denied", "doctor"},
		{"cause of a cause", sbxerr.Wrap(sbxerr.Mount, "rootfs.mount", denied),
			sbxerr.Mount, "open /x", "permission denied", "doctor"},
		{"codes within codes", sbxerr.Wrap(sbxerr.Engine, "runtime.create", sbxerr.Wrap(sbxerr.Cgroup, "cgroups.make", fmt.Errorf("make %q: %w", "/a", denied))),
			sbxerr.Engine, `make "/a"`, "open /x: permission denied", "log"},
		{"a code below a plain error", fmt.Errorf("create rootfs of a: %w", sbxerr.New(sbxerr.Overlay, "rootfs.overlay", "no overlays")),
			sbxerr.Overlay, "create rootfs of a", "no overlays", "overlay module"},
		{"a code in the middle of the text", fmt.Errorf("before (%w) after", sbxerr.New(sbxerr.Overlay, "rootfs.overlay", "no overlays")),
			sbxerr.Overlay, "before (no overlays) after", "", "overlay module"},
		{"all reasons", sbxerr.Wrap(sbxerr.Config, "runtime.plan", errors.Join(errors.New("one"), sbxerr.New(sbxerr.Limits, "x.y", "two"))),
			sbxerr.Config, "one; two", "", "correct the value"},
		{"own remedy", sbxerr.WithRemedy(sbxerr.Config, "x.y", errors.New("no"), "do that"),
			sbxerr.Config, "no", "", "do that"},
		{"remedy of an inner code is not taken", sbxerr.Wrap(sbxerr.Config, "x.y", sbxerr.New(sbxerr.DaemonOff, "a.b", "off")),
			sbxerr.Config, "off", "", "correct the value"},
		{"cancelled", fmt.Errorf("wait: %w", context.Canceled), sbxerr.Canceled, "wait", "context canceled", "nothing"},
		{"the time of a caller", sbxerr.Wrap(sbxerr.Canceled, "x.y", context.DeadlineExceeded), sbxerr.Deadline, "context deadline exceeded", "", "retry"},
		{"deadline", context.DeadlineExceeded, sbxerr.Deadline, "context deadline exceeded", "", "retry"},
		{"unclassified", errors.New("boom"), sbxerr.Unknown, "boom", "", "report"},
		{"a bare code", sbxerr.Busy, sbxerr.Busy, "SBX-113", "", "retry later"},
		{"no text", sbxerr.New(sbxerr.Busy, "x.y", ""), sbxerr.Busy, "too many sandboxes, commands or requests at once", "", "retry later"},
		{"several in one text", fmt.Errorf("first %w, then %w.", sbxerr.New(sbxerr.State, "x.y", "a"), sbxerr.New(sbxerr.NotFound, "x.y", "a")),
			sbxerr.State, "first a, then a.", "", "inspect"},
		{"several of ours", errors.Join(&Error{Code: sbxerr.State, Message: "a", Cause: "b"}, &Error{Code: sbxerr.NotFound, Message: "c"}),
			sbxerr.State, "a: b; c", "", "inspect"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := Explain(tt.err)
			if e.Code != tt.code || e.Message != tt.message || e.Cause != tt.cause {
				t.Errorf("got %s %q %q, want %s %q %q", e.Code, e.Message, e.Cause, tt.code, tt.message, tt.cause)
			}
			if !strings.Contains(e.Remedy, tt.remedy) {
				t.Errorf("remedy %q does not say %q", e.Remedy, tt.remedy)
			}
			if strings.ContainsAny(e.Error(), "\n") {
				t.Errorf("more than one line: %q", e.Error())
			}
			if row, _ := sbxerr.Describe(tt.code); e.Class != row.Class || e.Retryable != row.Retryable {
				t.Errorf("class %q, retryable %v; the table says %q, %v", e.Class, e.Retryable, row.Class, row.Retryable)
			}
		})
	}
}

func TestExplainKeepsWhatIsExplained(t *testing.T) {
	if Explain(nil) != nil {
		t.Error("nil is an error")
	}
	first := &Error{Code: sbxerr.NotFound, Message: "gone", Remedy: "look"}
	if got := Explain(fmt.Errorf("again: %w", first)); got != first {
		t.Errorf("got %+v", got)
	}
	if !errors.Is(first, sbxerr.NotFound) || errors.Is(first, sbxerr.Exists) || sbxerr.Of(first) != sbxerr.NotFound {
		t.Error("the code is not found by errors.Is")
	}
	if got, want := (&Error{Code: sbxerr.NotFound, Message: "gone", Cause: "why"}).Error(), "gone: why [SBX-107]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whether a call may be repeated is the code's word, and the error's own where that is final.
func TestRetryable(t *testing.T) {
	dead := sbxerr.Final(sbxerr.New(sbxerr.State, "x.y", "it has ended"))
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"by its code":         {sbxerr.New(sbxerr.State, "x.y", "it is being made"), true},
		"final":               {dead, false},
		"final, wrapped":      {fmt.Errorf("call: %w", sbxerr.Wrap(sbxerr.State, "x.z", dead)), false},
		"final within other":  {sbxerr.Wrap(sbxerr.Busy, "x.z", dead), true},
		"never by its code":   {sbxerr.New(sbxerr.NotFound, "x.y", "no"), false},
		"of a caller's limit": {context.DeadlineExceeded, true},
	} {
		if got := Explain(tc.err).Retryable; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
