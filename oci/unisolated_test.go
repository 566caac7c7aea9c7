package oci

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// goodUnisolated is good for a user of the host.
func goodUnisolated() Unisolated {
	c := Unisolated{Config: good(), InitPoint: "/run/caisson"}
	c.NetNSPath, c.UserNSPath, c.IDMap, c.Mounts, c.Process.AdditionalGIDs = "", "", IDMap{}, nil, nil
	return c
}

func unisolatedSpec(t *testing.T) *specs.Spec {
	t.Helper()
	spec, err := BuildUnisolated(goodUnisolated())
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestUnisolatedGolden(t *testing.T) {
	c := goodUnisolated()
	c.Seccomp.Architectures = []specs.Arch{specs.ArchX86_64}
	spec, err := BuildUnisolated(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "unisolated.golden.json", append(got, '\n'))
	golden(t, "unisolated.mounts.golden.txt", []byte(strings.Join(MountLines(spec), "\n")+"\n"))
}

func TestBuildUnisolatedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Unisolated)
		want   string
	}{
		"root":                {func(c *Unisolated) { c.Process.UID = 0 }, "root's"},
		"root's group":        {func(c *Unisolated) { c.Process.GID = 0 }, "root's"},
		"nobody":              {func(c *Unisolated) { c.Process.UID = 65534 }, "no user's"},
		"no id":               {func(c *Unisolated) { c.Process.UID = 1<<32 - 1 }, "no user's"},
		"groups":              {func(c *Unisolated) { c.Process.AdditionalGIDs = []uint32{4} }, "additional groups"},
		"build":               {func(c *Unisolated) { c.Allowed.WritableRoot = true }, "without isolation"},
		"network":             {func(c *Unisolated) { c.NetNSPath = testState + "/netns" }, "without isolation"},
		"user namespace":      {func(c *Unisolated) { c.UserNSPath = testState + "/userns" }, "without isolation"},
		"id map":              {func(c *Unisolated) { c.IDMap.Size = 1 }, "without isolation"},
		"mounts":              {func(c *Unisolated) { c.Mounts = good().Mounts }, "without isolation"},
		"no point":            {func(c *Unisolated) { c.InitPoint = "" }, "mount point of PID 1"},
		"point is the root":   {func(c *Unisolated) { c.InitPoint = "/" }, "mount point of PID 1"},
		"point is elsewhere":  {func(c *Unisolated) { c.InitPoint = "/etc" }, "mount point of PID 1"},
		"program elsewhere":   {func(c *Unisolated) { c.Process.Args[0] = "/bin/sh" }, "program of pid 1"},
		"program below":       {func(c *Unisolated) { c.Process.Args[0] = InitMount + "/x/sh" }, "program of pid 1"},
		"no program":          {func(c *Unisolated) { c.Process.Args = nil }, "program of pid 1"},
		"root is the host's":  {func(c *Unisolated) { c.RootPath = "/" }, "separate paths"},
		"devices in the root": {func(c *Unisolated) { c.DevDir = c.RootPath + "/dev" }, "separate paths"},
		"another's state":     {func(c *Unisolated) { c.StateDir = "/run/caisson/sandboxes/x" }, "state directory"},
		"no filter":           {func(c *Unisolated) { c.Seccomp = nil }, "seccomp"},
		"no limits":           {func(c *Unisolated) { c.Resources = nil }, "resources"},
		"no rlimits":          {func(c *Unisolated) { c.Rlimits = nil }, "RLIMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			c := goodUnisolated()
			tc.change(&c)
			if _, err := BuildUnisolated(c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestVerifyUnisolatedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*specs.Spec)
		want   string
	}{
		"root":                {func(s *specs.Spec) { s.Process.User.UID = 0 }, "is root"},
		"groups":              {func(s *specs.Spec) { s.Process.User.AdditionalGids = []uint32{4} }, "additional"},
		"umask":               {func(s *specs.Spec) { s.Process.User.Umask = nil }, "umask"},
		"capability":          {func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_KILL"} }, "capability"},
		"new privileges":      {func(s *specs.Spec) { s.Process.NoNewPrivileges = false }, "privileges"},
		"no filter":           {func(s *specs.Spec) { s.Linux.Seccomp = nil }, "seccomp"},
		"no memory limit":     {func(s *specs.Spec) { s.Linux.Resources.Memory = nil }, "memory"},
		"cgroup of another":   {func(s *specs.Spec) { s.Linux.CgroupsPath = "/caisson/x" }, "cgroup"},
		"device":              {func(s *specs.Spec) { s.Linux.Resources.Devices[0].Allow = true }, "device"},
		"no mask":             {func(s *specs.Spec) { s.Linux.MaskedPaths = nil }, "masked"},
		"shared mounts":       {func(s *specs.Spec) { s.Linux.RootfsPropagation = "rslave" }, "propagation"},
		"no pid namespace":    {func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "namespaces are"},
		"twice a namespace":   {func(s *specs.Spec) { s.Linux.Namespaces[1] = s.Linux.Namespaces[0] }, "namespaces are"},
		"joined":              {func(s *specs.Spec) { s.Linux.Namespaces[0].Path = "/proc/1/ns/pid" }, "existing"},
		"host name":           {func(s *specs.Spec) { s.Hostname = testID }, "host name"},
		"root of the host":    {func(s *specs.Spec) { s.Root.Path = "/" }, "root"},
		"other root":          {func(s *specs.Spec) { s.Root.Path = testState + "/init" }, "root"},
		"init can be written": {func(s *specs.Spec) { s.Mounts[5].Options = []string{"bind", "nosuid", "nodev", "rprivate", "rw"} }, "read-only"},
		"init elsewhere":      {func(s *specs.Spec) { s.Mounts[5].Destination = "/etc" }, "pid 1"},
		"program elsewhere":   {func(s *specs.Spec) { s.Process.Args[0] = "/bin/sh" }, "pid 1"},
		"host's devices":      {func(s *specs.Spec) { s.Mounts[1].Source = "/dev" }, "source"},
		"no proc":             {func(s *specs.Spec) { s.Mounts = s.Mounts[1:] }, "mounts are"},
		"another mount": {func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/opt", Type: "bind", Source: testState + "/x", Options: []string{"bind", "nosuid", "nodev", "rprivate", "ro"}})
		}, "mounts are"},
		"hook": {func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/x"}}} }, "Hooks"},
	} {
		t.Run(name, func(t *testing.T) {
			s := unisolatedSpec(t)
			if err := VerifyUnisolated(s); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			tc.change(s)
			if err := VerifyUnisolated(s); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestKindsDoNotMix: no part of a sandbox without isolation is taken in a strict one, nor the
// other way round.
func TestKindsDoNotMix(t *testing.T) {
	for name, kind := range map[string]struct {
		of, other func(*testing.T) *specs.Spec
		verify    func(*specs.Spec) error
	}{
		"strict":     {strictSpec, unisolatedSpec, Verify},
		"unisolated": {unisolatedSpec, strictSpec, VerifyUnisolated},
	} {
		t.Run(name, func(t *testing.T) {
			if err := kind.verify(kind.other(t)); err == nil {
				t.Error("the other kind is taken whole")
			}
			var mixed []string
			if err := kind.verify(kind.of(t)); err != nil {
				t.Fatal(err)
			}
			for _, part := range parts(reflect.TypeFor[specs.Spec](), nil) {
				spec := kind.of(t)
				to, from := field(spec, part), field(kind.other(t), part)
				if reflect.DeepEqual(to.Interface(), from.Interface()) {
					continue
				}
				to.Set(from)
				mixed = append(mixed, strings.Join(part, "."))
				if err := kind.verify(spec); err == nil {
					t.Errorf("%s of the other kind is taken", strings.Join(part, "."))
				}
			}
			if len(mixed) < 6 {
				t.Errorf("only %q differ", mixed)
			}
		})
	}
}

// strictSpec has of all that a strict sandbox may have only the part that it must have.
func strictSpec(t *testing.T) *specs.Spec {
	t.Helper()
	c := good()
	c.Process.AdditionalGIDs = nil
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// parts are the paths to all fields of a specification, through the structs that both kinds have.
func parts(in reflect.Type, above []string) (out [][]string) {
	for i := range in.NumField() {
		f := in.Field(i)
		path := append(append([]string{}, above...), f.Name)
		out = append(out, path)
		if name := strings.Join(path, "."); name == "Process" || name == "Root" || name == "Linux" {
			out = append(out, parts(f.Type.Elem(), path)...)
		}
		if strings.Join(path, ".") == "Process.User" {
			out = append(out, parts(f.Type, path)...)
		}
	}
	return out
}

func field(s *specs.Spec, path []string) reflect.Value {
	v := reflect.ValueOf(s).Elem()
	for _, name := range path {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		v = v.FieldByName(name)
	}
	return v
}

// TestUnisolatedProcesses: RLIMIT_NPROC would count the user's processes elsewhere, too.
func TestUnisolatedProcesses(t *testing.T) {
	v := RlimitValues{OpenFiles: 1, OpenFilesMax: 2, PIDs: 3}
	for name, tc := range map[string]struct {
		have []specs.POSIXRlimit
		want uint64
	}{
		"nothing bounds it":        {nil, 1 << 22},
		"the daemon's is infinite": {[]specs.POSIXRlimit{{Type: "RLIMIT_NPROC", Hard: unlimited}}, 1 << 22},
		"the daemon's is lower":    {[]specs.POSIXRlimit{{Type: "RLIMIT_NPROC", Hard: 5000}}, 5000},
	} {
		for i, l := range UnisolatedRlimits(v, tc.have) {
			want := Rlimits(v)[i]
			if l.Type == "RLIMIT_NPROC" {
				want.Soft, want.Hard = tc.want, tc.want
			}
			if l != want {
				t.Errorf("%s: %v, want %v", name, l, want)
			}
		}
	}
}

func TestUnisolatedAtOtherState(t *testing.T) {
	c := goodUnisolated()
	c.InitPoint = "/srv/a/state"
	c.StateDir = "/srv/a/state/sandboxes/" + testID
	c.RootPath, c.InitDir, c.DevDir = filepath.Join(c.StateDir, "rootfs"), filepath.Join(c.StateDir, "init"), filepath.Join(c.StateDir, "own/dev")
	c.Process.Args = []string{"/srv/a/state/caisson-init"}
	spec, err := BuildUnisolated(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyUnisolated(spec); err != nil {
		t.Error(err)
	}
}

// TestUnisolatedFieldsAreDecided: a field that is added to Config later must be used without
// isolation, or be refused by checkUnused.
func TestUnisolatedFieldsAreDecided(t *testing.T) {
	const used = "ID Process StateDir RootPath InitDir DevDir CgroupsPath Seccomp Resources Rlimits OOMScoreAdj TmpfsBytes TmpfsInodes ShmBytes Annotations"
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		c, whole := goodUnisolated(), good()
		whole.Allowed.WritableRoot, whole.Hostname, whole.HomeDir = true, "box", filepath.Join(whole.StateDir, "homes/0")
		reflect.ValueOf(&c.Config).Elem().Field(i).Set(reflect.ValueOf(whole).Field(i))
		_, err := BuildUnisolated(c)
		if want := !slices.Contains(strings.Fields(used), name); (err != nil) != want && name != "Process" {
			t.Errorf("%s: error %v, want one: %v", name, err, want)
		}
	}
}
