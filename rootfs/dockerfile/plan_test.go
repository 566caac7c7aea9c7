package dockerfile

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// images are those that the tests' FROM can name.
func images(name string) (ocispec.ImageConfig, error) {
	switch name {
	case "base":
		return ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}, WorkingDir: "/"}, nil
	case "debian:12":
		return ocispec.ImageConfig{User: "app", Labels: map[string]string{"a": "b"}}, nil
	}
	return ocispec.ImageConfig{}, sbxerr.New(sbxerr.ImageNotFound, "test", "no image %q", name)
}

func plan(t *testing.T, file string, o Options) *Plan {
	t.Helper()
	o.Image = images
	p, err := New([]byte(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlan(t *testing.T) {
	p := plan(t, `# comment
ARG TAG=12
FROM debian:${TAG} AS tools
USER root
RUN echo $HOME \
  && true

FROM base
ARG VERSION=1
ARG HTTP
ENV A=1 B="$A two" PATH=/opt/bin:$PATH
WORKDIR /srv
WORKDIR app
LABEL version=$VERSION org.x="a b"
COPY --from=tools --chown=app:app --chmod=755 /usr/bin/x /usr/bin/y bin/
COPY . .
RUN ["make", "$A"]
USER 1000:1000
ENTRYPOINT ["/srv/app/run"]
CMD serve $A
`, Options{Args: map[string]string{"HTTP": "proxy"}})
	want := []Step{
		{Line: 12, Text: "WORKDIR /srv", Dir: "/srv"},
		{Line: 13, Text: "WORKDIR app", Dir: "/srv/app"},
		{Line: 15, Text: "COPY --from=tools --chown=app:app --chmod=755 /usr/bin/x /usr/bin/y bin/",
			Copy: &Copy{Sources: []string{"/usr/bin/x", "/usr/bin/y"}, Dest: "/srv/app/bin/", Owner: "app:app", Mode: 0o755}},
		{Line: 16, Text: "COPY . .", Copy: &Copy{Stage: -1, Sources: []string{"."}, Dest: "/srv/app/", Mode: -1}},
		{Line: 17, Text: `RUN ["make", "$A"]`, Run: &Run{Args: []string{"make", "$A"}, Dir: "/srv/app",
			Env: []string{"A=1", "B= two", "PATH=/opt/bin:/bin", "HTTP=proxy", "VERSION=1"}}},
	}
	s := p.Stages[1]
	for i, step := range s.Steps {
		if i >= len(want) || !reflect.DeepEqual(step, want[i]) {
			t.Errorf("step %d: %s", i, text(step))
		}
	}
	config := ocispec.ImageConfig{
		User: "1000:1000", Env: []string{"A=1", "B= two", "PATH=/opt/bin:/bin"}, WorkingDir: "/srv/app",
		Entrypoint: []string{"/srv/app/run"}, Cmd: []string{"/bin/sh", "-c", "serve $A"}, Labels: map[string]string{"version": "1", "org.x": "a b"},
	}
	if len(s.Steps) != len(want) || !reflect.DeepEqual(s.Config, config) {
		t.Errorf("%d steps, configuration %s", len(s.Steps), text(s.Config))
	}
	first := p.Stages[0]
	if run := first.Steps[0].Run; first.Image != "debian:12" || run.User != "root" || run.Shell != "echo $HOME   && true" {
		t.Errorf("first stage: %s", text(first))
	}
}

func text(v any) string {
	data, _ := json.Marshal(v) // plain data
	return string(data)
}

// TestUnneededStages: their steps are dropped, and indexes stay.
func TestUnneededStages(t *testing.T) {
	file := "FROM base AS a\nRUN a\nFROM base AS b\nRUN b\nFROM b AS c\nCOPY --from=0 x /\nFROM base AS d\nRUN d\n"
	for target, want := range map[string]string{"": "---1", "a": "1", "b": "-1", "2": "111", "c": "111"} {
		steps := ""
		for _, s := range plan(t, file, Options{Target: target}).Stages {
			if len(s.Steps) == 0 {
				steps += "-"
				continue
			}
			steps += "1"
		}
		if steps != want {
			t.Errorf("target %q: %s, want %s", target, steps, want)
		}
	}
}

// TestRefused: each refusal names its line.
func TestRefused(t *testing.T) {
	for file, want := range map[string]string{
		"":                               "[SBX-228]: file with no instructions",
		"# only\n":                       "no instructions",
		"RUN x\n":                        "line 1: RUN comes before the first FROM",
		"ARG A\n":                        "there is no FROM",
		"FROM base\nHEALTHCHECK CMD x\n": "line 2: HEALTHCHECK is not supported",
		"FROM base\nONBUILD RUN x\n":     "line 2: ONBUILD is not supported",
		"FROM base\nVOLUME /x\n":         "line 2: VOLUME is not supported",
		"FROM base\nFETCH x\n":           "line 2: FETCH is not supported",
		"FROM base\n\nRUN --mount=type=cache,t=/x y": "line 3: RUN has no flag --mount",
		"FROM base\nRUN --network=host y":            "line 2: RUN has no flag --network",
		"FROM --platform=linux/arm64 base\n":         "line 1: FROM has no flag --platform",
		"FROM base\nCOPY --link a b\n":               "line 2: COPY --link is not supported; there are --from, --chown, --chmod",
		"FROM base\nCOPY --chmod=u+x a b\n":          "line 2: --chmod=u+x",
		"FROM base\nCOPY --chmod=4755 a b\n":         "line 2: --chmod=4755",
		"FROM base\nCOPY --chown= a b\n":             "line 2: COPY --chown needs a value",
		"FROM base\nCOPY a\n":                        "line 2: COPY has 1 arguments",
		"FROM base\nCOPY --from=7 a b\n":             "line 2: there is no earlier stage 7",
		"FROM base\nCOPY --from=0 a b\n":             "line 2: there is no earlier stage 0",
		"FROM base AS x\nCOPY --from=x a b\n":        "line 2: COPY --from=x is the stage itself",
		"FROM base AS x\nFROM base AS X\n":           "line 2: there is another stage",
		"FROM base\nADD https://x.example/y /y\n":    "line 2: ADD of https://x.example/y",
		"FROM base\nADD x.tar.gz /y\n":               "line 2: ADD does not unpack",
		"FROM base\nRUN <<EOF\nx\nEOF\n":             "line 2: RUN with a here-document",
		"FROM base\nRUN []\n":                        "line 2: RUN has no command",
		"FROM base\nENV A\n":                         "line 2",
		"FROM base\nENV A=${B\n":                     "line 2",
		"FROM base\nARG a-b=1\n":                     `line 2: ARG "a-b"`,
		"FROM nothing\n":                             "line 1: ",
		"FROM base as\n":                             "line 1: ",
		"FROM base\nWORKDIR $NOTHING\n":              "line 2: WORKDIR is empty",
	} {
		_, err := New([]byte(file), Options{Image: images})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
		if want := sbxerr.Dockerfile; sbxerr.Of(err) != want && !strings.HasPrefix(file, "FROM nothing") {
			t.Errorf("%q: code %s", file, sbxerr.Of(err))
		}
	}
}

// TestRefusesAll: several bad lines are refused together.
func TestRefusesAll(t *testing.T) {
	if _, err := New([]byte("FROM nothing\nRUN x\n"), Options{Image: images}); err == nil || strings.Contains(err.Error(), "line 2") {
		t.Errorf("an image that is not there: %v", err)
	}
	_, err := New([]byte("FROM base\nVOLUME a\nRUN ok\nEXPOSE 1\n"), Options{Image: images})
	if err == nil || !strings.Contains(err.Error(), "line 2: VOLUME") || !strings.Contains(err.Error(), "line 4: EXPOSE") {
		t.Error(err)
	}
	if _, err := New([]byte("FROM base\n"), Options{Image: images, Args: map[string]string{"X": "1"}}); !errors.Is(err, sbxerr.Dockerfile) {
		t.Errorf("an argument that nothing uses: %v", err)
	}
	if _, err := New([]byte("FROM base\n"), Options{Image: images, Target: "x"}); !errors.Is(err, sbxerr.Dockerfile) {
		t.Errorf("a target that is not there: %v", err)
	}
	if _, err := New([]byte("FROM base\nRUN "+strings.Repeat("x", 2<<20)), Options{Image: images}); !errors.Is(err, sbxerr.Dockerfile) {
		t.Errorf("a huge file: %v", err)
	}
}

// FuzzNew: no file makes the planner fail in another way than by an error.
func FuzzNew(f *testing.F) {
	f.Add("FROM base\nRUN a ${B:-c}\nCOPY --from=0 [\"a\", \"b\"]\nENV a=b c=d\n")
	f.Add("# escape=`\nFROM base AS x\nLABEL a b\nCMD [\"x\"]\nENTRYPOINT y\n")
	f.Fuzz(func(t *testing.T, file string) {
		p, err := New([]byte(file), Options{Image: images})
		if (p == nil) != (err != nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
