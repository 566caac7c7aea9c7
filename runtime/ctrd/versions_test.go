package ctrd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestCheckRunc(t *testing.T) {
	for version, want := range map[string]Severity{
		"1.1.5+ds1":     Refused, // Debian 12
		"1.3.5":         Refused,
		"1.3.6":         Warned,
		"1.3.7":         Fine,
		"1.4.0-rc.1":    Refused,
		"1.4.2":         Refused,
		"1.4.3":         Warned,
		"1.4.4":         Fine,
		"1.5.0-rc.2":    Refused,
		"1.5.0-rc.3":    Warned,
		"1.5.0-rc.10":   Warned,
		"1.5.0":         Warned,
		"1.5.2":         Warned,
		"1.5.3":         Fine, // ours
		"1.6.0-rc.1":    Fine, // a line past the last: newer than every fix
		"2.0.0":         Fine,
		"1.2.99":        Refused,
		"0.1.0":         Refused,
		"":              Refused,
		"unknown":       Refused,
		"1.5":           Refused,
		"1.5.3-":        Refused,
		"1.5.x":         Refused,
		"-1.5.3":        Refused,
		"1.5.999999999": Refused,
	} {
		got := CheckRunc(version)
		if got.Severity != want || (got.Reason == "") != (want == Fine) {
			t.Errorf("runc %q: %+v, want %s", version, got, want)
		}
	}
}

func TestCheckContainerd(t *testing.T) {
	for version, want := range map[string]Severity{
		"1.6.20~ds1":      Refused, // Debian 12
		"1.6.99":          Refused,
		"1.7.0-rc.1":      Refused,
		"v1.7.0":          Warned,
		"v1.7.35":         Warned, // CRI checkpoints are never mended there
		"v2.0.10":         Warned,
		"v2.3.1":          Warned,
		"v2.3.4":          Warned,
		"v2.3.5":          Fine,
		"v2.4.1":          Warned,
		"v2.4.2":          Fine, // ours
		"2.4.2+unknown":   Fine,
		"v2.5.0":          Fine,
		"v2.4.2-5-gabcde": Warned, // reads as a pre-release: rather a warning too many
		"":                Refused,
	} {
		got := CheckContainerd(version)
		if got.Severity != want || (got.Reason == "") != (want == Fine) {
			t.Errorf("containerd %q: %+v, want %s", version, got, want)
		}
	}
	if CheckContainerd("v1.7.34").Reason == CheckContainerd("v1.7.32").Reason {
		t.Error("the fix of 1.7.33 makes no difference")
	}
}

// The tables must say what the comparison relies on.
func TestFloors(t *testing.T) {
	for _, f := range append(containerdFloors, runcFloors...) {
		if f.why == "" || f.severity != Warned && f.severity != Refused || len(f.fixed) == 0 {
			t.Errorf("incomplete: %+v", f)
		}
		var before semver
		for _, text := range f.fixed {
			v, err := parseVersion(text)
			if err != nil {
				t.Error(err)
			}
			if !before.less(v) || before.line() == v.line() {
				t.Errorf("%q is out of order in %q", text, f.fixed)
			}
			before = v
		}
	}
	if !(floor{fixed: []string{"slip"}}).below(semver{major: 99}) {
		t.Error("a slip in the table lets everything pass")
	}
	if judge("1.0.0", nil).Severity != Fine || (VersionFinding{}).Severity == Fine {
		t.Error("an empty finding must not be a fine one")
	}
}

func TestLess(t *testing.T) {
	// By semver.org, in ascending order.
	order := strings.Fields("0.9.9 1.0.0-1 1.0.0-2 1.0.0-10 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 1.1.0 2.0.0")
	for i, a := range order {
		for j, b := range order {
			x, errX := parseVersion(a)
			y, errY := parseVersion(b)
			if errX != nil || errY != nil || x.less(y) != (i < j) {
				t.Errorf("%s < %s is %v (%v, %v)", a, b, x.less(y), errX, errY)
			}
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"1.2.3", "v1.2.3-rc.1+x", "1.6.20~ds1", "...", "1.2.3-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parseVersion(s)
		if err != nil {
			return
		}
		text := fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch)
		if v.pre != "" {
			text += "-" + v.pre
		}
		if again, err := parseVersion(text); err != nil || again != v || v.less(v) {
			t.Errorf("%q reads as %+v, and that as %+v, %v", s, v, again, err)
		}
	})
}

func TestParseRuncVersion(t *testing.T) {
	for out, want := range map[string]string{
		"runc version 1.5.2\nspec: 1.3.0\n": "1.5.2",
		"runc version 1.1.5+ds1":            "1.1.5+ds1",
		"crun version 1.8.1\n":              "",
		"":                                  "",
	} {
		if got, ok := parseRuncVersion(out); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", out, got, ok)
		}
	}
}

func TestVersions(t *testing.T) {
	e := connect(t, supervise(t))
	v, err := e.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The versions that go.mod pins must be ones that we would run.
	if f := CheckContainerd(v.Containerd); f.Severity != Fine {
		t.Errorf("containerd %s: %+v", v.Containerd, f)
	}
	if f := CheckRunc(v.Runc); f.Severity == Refused {
		t.Errorf("runc %s: %+v", v.Runc, f)
	}
	server, runc, err := ProgramVersions(t.Context(), binDir(t))
	if err != nil || server != v.Containerd || runc != v.Runc {
		t.Errorf("the programs say %q and %q, %v; want %+v", server, runc, err, v)
	}
	e.cfg.Runc = "/bin/busybox"
	if _, err := e.Versions(t.Context()); err == nil {
		t.Error("the version of something that is not runc")
	}
}

func TestClassify(t *testing.T) {
	gone, leave := context.WithCancelCause(t.Context())
	leave(errors.New("the caller hung up"))
	late, cancel := context.WithTimeoutCause(t.Context(), 0, fmt.Errorf("too slow: %w", context.DeadlineExceeded))
	defer cancel()
	for _, tt := range []struct {
		what  string
		ctx   context.Context
		err   error
		code  sbxerr.Code
		cause string
	}{
		{"nothing", t.Context(), nil, "", ""},
		{"refused", t.Context(), errdefs.ErrInvalidArgument, sbxerr.Engine, `make thing "x"`},
		{"taken", t.Context(), errdefs.ErrAlreadyExists, sbxerr.Exists, ""},
		{"no memory for filters", t.Context(), errors.New("runc create failed: unable to start container process: error during container init: unable to init seccomp:" +
			" error loading seccomp filter into kernel: error loading seccomp filter: errno 524"), sbxerr.SeccompMemory, "errno 524"},
		{"away", t.Context(), errdefs.ErrUnavailable, sbxerr.EngineDown, ""},
		{"down", t.Context(), errDown, sbxerr.EngineDown, ""},
		{"status", t.Context(), native(status.Error(codes.Unavailable, "eof")), sbxerr.EngineDown, "eof"},
		{"late", late, native(status.Error(codes.DeadlineExceeded, "x")), sbxerr.Deadline, "too slow"},
		{"gone", gone, native(status.Error(codes.Canceled, "x")), sbxerr.Canceled, "the caller hung up"},
		{"has a code", t.Context(), sbxerr.New(sbxerr.ImageNotFound, "a.b", "no"), sbxerr.ImageNotFound, "a.b"},
	} {
		err := classify(tt.ctx, "ctrd.op", "make thing", "x", tt.err)
		if sbxerr.Of(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.cause) {
			t.Errorf("%s: %v, want %s with %q", tt.what, err, tt.code, tt.cause)
		}
		if tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: the cause is lost: %v", tt.what, err)
		}
	}
}

// A caller that has given up is not kept waiting for a server that is down.
func TestDownIsNoticed(t *testing.T) {
	conn, err := dial(t.TempDir() + "/none.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e := &Engine{conn: conn, cfg: EngineConfig{Namespace: "x"}}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller hung up"))
	err = e.call(ctx, "ctrd.op", "make thing", "x", func(context.Context) error { t.Error("called"); return nil })
	if err == nil || !strings.Contains(err.Error(), "the caller hung up") {
		t.Errorf("call: %v", err)
	}
}
