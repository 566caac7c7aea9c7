package image

import (
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestCleanConfigRefuses(t *testing.T) {
	long := strings.Repeat("x", maxString)
	cases := map[string]struct {
		c    ocispec.ImageConfig
		says string
	}{
		"env without a value":   {ocispec.ImageConfig{Env: []string{"A"}}, "NAME=VALUE"},
		"env without a name":    {ocispec.ImageConfig{Env: []string{"=x"}}, "NAME=VALUE"},
		"env is empty":          {ocispec.ImageConfig{Env: []string{""}}, "NAME=VALUE"},
		"env with a NUL":        {ocispec.ImageConfig{Env: []string{"A=b\x00c"}}, "NUL"},
		"env of other text":     {ocispec.ImageConfig{Env: []string{"A=\xff"}}, "UTF-8"},
		"long env":              {ocispec.ImageConfig{Env: []string{"A=" + long}}, "at most"},
		"much env":              {ocispec.ImageConfig{Env: slices.Repeat([]string{"A=1"}, maxStrings+1)}, "at most"},
		"large env":             {ocispec.ImageConfig{Env: slices.Repeat([]string{"A=" + long[10:]}, 5)}, "at most"},
		"cmd with a NUL":        {ocispec.ImageConfig{Cmd: []string{"a\x00"}}, "NUL"},
		"much cmd":              {ocispec.ImageConfig{Cmd: make([]string, maxStrings+1)}, "at most"},
		"entrypoint with a NUL": {ocispec.ImageConfig{Entrypoint: []string{"\x00"}}, "NUL"},
		"relative directory":    {ocispec.ImageConfig{WorkingDir: "app"}, "absolute"},
		"directory climbs":      {ocispec.ImageConfig{WorkingDir: "/a/../../b"}, `".."`},
		"directory is a link":   {ocispec.ImageConfig{WorkingDir: "/proc/self/fd/7"}, "inside /dev, /proc or /sys"},
		"directory hides it":    {ocispec.ImageConfig{WorkingDir: "//./proc/self/fd/7"}, "inside /dev, /proc or /sys"},
		"directory is dev":      {ocispec.ImageConfig{WorkingDir: "/dev"}, "inside /dev, /proc or /sys"},
		"directory with a NUL":  {ocispec.ImageConfig{WorkingDir: "/a\x00"}, "NUL"},
		"long directory":        {ocispec.ImageConfig{WorkingDir: "/" + strings.Repeat("a/", 3000)}, "at most"},
		"user":                  {ocispec.ImageConfig{User: "-1"}, "neither a name nor a number"},
		"group":                 {ocispec.ImageConfig{User: "app:"}, "neither a name nor a number"},
	}
	for name, tc := range cases {
		if _, err := cleanConfig(tc.c); sbxerr.Of(err) != sbxerr.ImageContent || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := cleanConfig(ocispec.ImageConfig{User: "+0", WorkingDir: "x", Env: []string{"A"}})
	for _, want := range []string{"+0", "absolute", "NAME=VALUE"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

func TestCleanConfigKeeps(t *testing.T) {
	for in, want := range map[string]string{"": "/", "/": "/", "/srv/app/": "/srv/app", "/processes": "/processes"} {
		c, err := cleanConfig(ocispec.ImageConfig{WorkingDir: in})
		if err != nil || c.WorkingDir != want {
			t.Errorf("%q became %q, err %v", in, c.WorkingDir, err)
		}
	}
	in := []string{"A=1", "B=", "A=2=3", "BASH_FUNC_x%%=() { :; }"}
	c, err := cleanConfig(ocispec.ImageConfig{Env: in, User: "65535:0"})
	if want := []string{"A=2=3", "B=", in[3]}; err != nil || !slices.Equal(c.Env, want) {
		t.Errorf("env %q, err %v", c.Env, err)
	}
}

func TestMergeEnv(t *testing.T) {
	got := MergeEnv([]string{"A=1", "B=2"}, nil, []string{"B=3", "C="}, []string{"A=", "A=9=9"})
	if want := []string{"A=9=9", "B=3", "C="}; !slices.Equal(got, want) {
		t.Errorf("merged %q, want %q", got, want)
	}
}
