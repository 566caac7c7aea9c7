package dockerfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// images are those that the tests' FROM can name.
func images(name string) (Config, error) {
	switch name {
	case "base":
		return Config{ImageConfig: ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}, WorkingDir: "/"}}, nil
	case "debian:12":
		return Config{ImageConfig: ocispec.ImageConfig{User: "app", Labels: map[string]string{"a": "b"}}}, nil
	case "triggers":
		return Config{Shell: []string{"/bin/bash", "-ec"}, OnBuild: []string{"COPY . /app", "RUN make"}}, nil
	case "hostile":
		return Config{OnBuild: []string{"FROM base", "ONBUILD RUN x", "RUN", "NOTHING"}}, nil
	}
	return Config{}, sbxerr.New(sbxerr.ImageNotFound, "test", "no image %q", name)
}

func plan(t *testing.T, file string, o Options) *Plan {
	t.Helper()
	o.Image, o.Platform = images, Platform{OS: "linux", Architecture: "amd64"}
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
		{Line: 12, Text: "WORKDIR /srv", Dir: &Dir{Name: "/srv"}},
		{Line: 13, Text: "WORKDIR app", Dir: &Dir{Name: "/srv/app"}},
		{Line: 15, Text: "COPY --from=tools --chown=app:app --chmod=755 /usr/bin/x /usr/bin/y bin/",
			Copy: &Copy{Sources: []string{"/usr/bin/x", "/usr/bin/y"}, Dest: "/srv/app/bin/", Owner: "app:app", Mode: "755"}},
		{Line: 16, Text: "COPY . .", Copy: &Copy{Stage: -1, Sources: []string{"."}, Dest: "/srv/app/"}},
		{Line: 17, Text: `RUN ["make", "$A"]`, Run: &Run{Args: []string{"make", "$A"}, Dir: "/srv/app",
			Env: []string{"PATH=/opt/bin:/bin", "A=1", "B= two", "HTTP=proxy", "VERSION=1"}}},
	}
	s := p.Stages[1]
	for i, step := range s.Steps {
		if i >= len(want) || !reflect.DeepEqual(step, want[i]) {
			t.Errorf("step %d: %s", i, text(step))
		}
	}
	config := ocispec.ImageConfig{
		User: "1000:1000", Env: []string{"PATH=/opt/bin:/bin", "A=1", "B= two"}, WorkingDir: "/srv/app",
		Entrypoint: []string{"/srv/app/run"}, Cmd: []string{"/bin/sh", "-c", "serve $A"}, Labels: map[string]string{"version": "1", "org.x": "a b"},
	}
	if len(s.Steps) != len(want) || !reflect.DeepEqual(s.Config, Config{ImageConfig: config}) {
		t.Errorf("%d steps, configuration %s", len(s.Steps), text(s.Config))
	}
	first := p.Stages[0]
	if run := first.Steps[0].Run; first.Image != "debian:12" || run.User != "root" || !reflect.DeepEqual(run.Args, []string{"/bin/sh", "-c", "echo $HOME   && true"}) {
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
		"":                                               "[SBX-228]: file with no instructions",
		"# only\n":                                       "no instructions",
		"RUN x\n":                                        "line 1: RUN comes before the first FROM",
		"ARG A\n":                                        "there is no FROM",
		"FROM base\nHEALTHCHECK CMD\n":                   "line 2: Missing command after HEALTHCHECK CMD",
		"FROM base\nONBUILD ONBUILD RUN x\n":             "line 2: ",
		"FROM base\nONBUILD FROM x\n":                    "line 2: FROM isn't allowed",
		"FROM base\nFETCH x\n":                           "line 2: unknown instruction: FETCH",
		"FROM base\nRUN --network=host y":                "line 2: RUN --network is not supported",
		"FROM base\nRUN --security=insecure y":           "line 2: RUN --security is not supported",
		"FROM --platform=linux/arm64 base\n":             "line 1: --platform=linux/arm64: images are built for linux/amd64 alone",
		"FROM --platform=x/y/z/w base\n":                 "line 1: --platform=x/y/z/w",
		"FROM base\nCOPY --chmod=u+q a b\n":              "line 2: --chmod=u+q",
		"FROM base\nCOPY --chmod=17777 a b\n":            "line 2: --chmod=17777",
		"FROM base\nCOPY a\n":                            "line 2: COPY requires at least two arguments",
		"FROM base\nCOPY --from=7 a b\n":                 "line 2: there is no earlier stage 7",
		"FROM base\nCOPY --from=0 a b\n":                 "line 2: there is no earlier stage 0",
		"FROM base\nCOPY --from=$X a b\n":                "line 2: --from=$X: variables are not replaced",
		"FROM base\nCOPY --parents a b\n":                "line 2: COPY --exclude and --parents",
		"FROM base AS x\nCOPY --from=x a b\n":            "line 2: --from=x is the stage itself",
		"FROM base AS x\nFROM base AS X\n":               "line 2: there is another stage",
		"FROM base\nADD https://x.example/y.git#v1 /y\n": "line 2: ADD of https://x.example/y.git#v1: git repositories are not supported",
		"FROM base\nADD --checksum=be1f38e git@x.example:a/y.git /y\n":      "ADD of git@x.example:a/y.git: git repositories are not supported",
		"ARG U=ftp://x\nFROM base\nARG U\nADD $U/y /y\n":                    "line 4: ADD of ftp://x/y: only http and https are supported",
		"FROM base\nADD https://x.example /y/\n":                            "its path names no file",
		"FROM base\nADD https:///y /y/\n":                                   "it is no URL with a host",
		"FROM base\nADD --checksum=md5:00 https://x.example/y /y\n":         "write sha256: and 64 hexadecimal digits",
		"FROM base\nADD --checksum=sha256:00 https://x.example/y /y\n":      "write sha256: and 64 hexadecimal digits",
		"FROM base\nADD --checksum=sha256:00 f /y\n":                        "--checksum is for one source, which is a URL",
		"FROM base\nADD --checksum=sha256:00 https://x/a https://x/b /y/\n": "--checksum is for one source, which is a URL",
		"FROM base\nADD f https://x.example/y /y\n":                         "2 sources need a directory",
		"FROM base\nRUN []\n":                                               "line 2: RUN has no command",
		"FROM base\nRUN\n":                                                  "line 2: RUN has no command",
		"FROM base\nSHELL /bin/bash\n":                                      "line 2: SHELL requires the arguments to be in JSON form",
		"FROM base\nENV A\n":                                                "line 2",
		"FROM base\nENV A=${B\n":                                            "line 2",
		"FROM base\nARG a-b=1\n":                                            `line 2: ARG "a-b"`,
		"FROM hostile\n":                                                    "line 1: an ONBUILD of the image holds",
		"FROM $NOTHING\n":                                                   "line 1: FROM $NOTHING: the name of the image is empty",
		"FROM nothing\n":                                                    "line 1: ",
		"FROM base as\n":                                                    "line 1: ",
		"FROM base\nWORKDIR $NOTHING\n":                                     "line 2: WORKDIR is empty",
	} {
		_, err := New([]byte(file), Options{Image: images, Platform: Platform{OS: "linux", Architecture: "amd64"}})
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
	_, err := New([]byte("FROM base\nFETCH a\nRUN ok\nSHELL x\n"), Options{Image: images})
	if err == nil || !strings.Contains(err.Error(), "line 2: ") || !strings.Contains(err.Error(), "line 4: ") {
		t.Error(err)
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
	f.Add("FROM triggers\nRUN <<A <<B\nx\nA\ny\nB\nCOPY <<\"E\" /f\n$x\nE\nSHELL [\"a\"]\nADD --chmod=u+x *.tar /\n")
	f.Fuzz(func(t *testing.T, file string) {
		p, err := New([]byte(file), Options{Image: images})
		if (p == nil) != (err != nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}

// TestWarnings: what has no effect is taken, with one warning of each kind.
func TestWarnings(t *testing.T) {
	p := plan(t, "FROM base\nMAINTAINER x\nEXPOSE 80\nEXPOSE 81\nVOLUME /x\nHEALTHCHECK NONE\nSTOPSIGNAL INT\nARG used\n",
		Options{Args: map[string]string{"used": "1", "http_proxy": "x", "HTTPS_PROXY": "y", "TARGETARCH": "z", "other": "2"}})
	var got []string
	for _, w := range p.Warnings {
		word, _, _ := strings.Cut(w.Text, " ")
		got = append(got, fmt.Sprintf("%d %s", w.Line, word))
	}
	if want := "2 MAINTAINER, 3 EXPOSE, 5 VOLUME, 6 HEALTHCHECK, 7 STOPSIGNAL, 0 the"; strings.Join(got, ", ") != want {
		t.Errorf("warnings: %+v", p.Warnings)
	}
	if want := []string{"HTTPS_PROXY=y", "https_proxy=y", "HTTP_PROXY=x", "http_proxy=x"}; !reflect.DeepEqual(p.Proxies, want) {
		t.Errorf("proxies: %q", p.Proxies)
	}
}

// lastRun plans a file and returns the last command of its last stage.
func lastRun(t *testing.T, file string, o Options) *Run {
	t.Helper()
	p := plan(t, file, o)
	steps := p.Stages[len(p.Stages)-1].Steps
	return steps[len(steps)-1].Run
}

// TestVariables: what ARG, ENV and the platform give to a command.
func TestVariables(t *testing.T) {
	for file, want := range map[string]string{
		"FROM base\nARG A\nRUN x":                                               "PATH=/bin",
		"FROM base\nARG A=\nRUN x":                                              "PATH=/bin A=",
		"ARG A=1\nFROM base\nRUN x":                                             "PATH=/bin",
		"ARG A=1\nFROM base\nARG A\nRUN x":                                      "PATH=/bin A=1",
		"ARG A\nFROM base\nARG A\nRUN x":                                        "PATH=/bin",
		"FROM base\nARG GIVEN=1\nRUN x":                                         "PATH=/bin GIVEN=g",
		"FROM base\nARG TARGETARCH TARGETOS BUILDPLATFORM\nRUN x":               "PATH=/bin BUILDPLATFORM=linux/amd64 TARGETARCH=amd64 TARGETOS=linux",
		"FROM base\nRUN x $TARGETARCH":                                          "PATH=/bin",
		"FROM base AS a\nARG A=1\nFROM a\nRUN x":                                "PATH=/bin A=1",
		"FROM base\nENV A=2\nARG A=1\nRUN x":                                    "PATH=/bin A=2",
		"FROM base\nENV A=1\nENV A=2 B=$A\nRUN x":                               "PATH=/bin A=2 B=1",
		"FROM debian:12\nENV PATH=/x:$PATH\nRUN x":                              "PATH=/x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"FROM --platform=$BUILDPLATFORM base\nARG V=1.2\nENV W=${V/./_}\nRUN x": "PATH=/bin W=1_2 V=1.2",
	} {
		if got := strings.Join(lastRun(t, file, Options{Args: map[string]string{"GIVEN": "g"}}).Env, " "); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

// TestCommands: shells, here-documents and triggers.
func TestCommands(t *testing.T) {
	for file, want := range map[string]string{
		"FROM base\nSHELL [\"/bin/bash\", \"-c\"]\nRUN a b":     `["/bin/bash","-c","a b"]`,
		"FROM base\nRUN <<EOF\na\nb\nEOF\n":                     `["/bin/sh","-c","a\nb\n"]`,
		"FROM base\nRUN <<-EOF\n\ta\n\tEOF\n":                   `["/bin/sh","-c","a\n"]`,
		"FROM base\nRUN cat <<A > /x && cat <<B\na\nA\nb\nB\n":  `["/bin/sh","-c","cat \u003c\u003cA \u003e /x \u0026\u0026 cat \u003c\u003cB\na\nA\nb\nB"]`,
		"FROM base\nRUN <<EOF\n#!/usr/bin/env python\nx\nEOF\n": `["/tmp/EOF"]`,
		"FROM triggers\n": `["/bin/bash","-ec","make"]`,
		"FROM base AS a\nONBUILD RUN [\"x\"]\nFROM a\n": `["x"]`,
	} {
		if run := lastRun(t, file, Options{}); text(run.Args) != want {
			t.Errorf("%q: %s, want %s", file, text(run.Args), want)
		}
	}
	p := plan(t, "FROM triggers AS a\nONBUILD USER x\nFROM a AS b\nFROM b\n", Options{})
	if last := p.Stages[2].Config; last.User != "x" || len(last.OnBuild) != 0 || len(p.Stages[0].Config.OnBuild) != 1 {
		t.Errorf("triggers: %s", text(p))
	}
	c := plan(t, "FROM base\nENV A=1\nCOPY <<E1 <<\"E2\" /d/\n$A 'q'\nE1\n$A\nE2\n", Options{}).Stages[0].Steps[0].Copy
	if want := []Text{{Name: "E1", Content: "1 'q'\n"}, {Name: "E2", Content: "$A\n"}}; !reflect.DeepEqual(c.Texts, want) {
		t.Errorf("files: %q", c.Texts)
	}
}

// TestBounds: no file makes the planner take much time or memory.
func TestBounds(t *testing.T) {
	double := strings.Repeat("ENV A=$A$A\n", 40)
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, file := range map[string]string{
		"doubling":             "FROM base\nENV A=x\n" + double,
		"doubling ARG":         "FROM base\nARG A=x\n" + strings.ReplaceAll(double, "ENV", "ARG"),
		"doubling before":      "ARG A=x\n" + strings.ReplaceAll(double, "ENV", "ARG") + "FROM base\n",
		"doubling LABEL":       "FROM base\nENV A=" + strings.Repeat("x", 60000) + "\nLABEL" + many(" l%d=$A", 10000) + "\n",
		"many names":           "FROM base\nENV" + many(" a%d=1", 45000) + "\n",
		"many labels":          "FROM base\nLABEL" + many(" a%d=1", 45000) + "\n",
		"deep":                 "FROM base\nENV A=" + strings.Repeat("${A:-", 100000) + "\n",
		"replacing":            "FROM base\nENV A=" + strings.Repeat("a", 4000) + "\nENV B=" + strings.Repeat("${A//a/$A}", 20) + "\n",
		"nested replacing":     "FROM base\nENV A=aaaa\nENV B=${A//a/${A//a/${A//a/$A}}}\n",
		"a long replacement":   "FROM base\nENV A=aaaa\nENV B=${A//a/" + strings.Repeat("b", 100000) + "}\n",
		"COPY":                 "FROM base\nENV A=" + strings.Repeat("x", 60000) + "\nCOPY" + strings.Repeat(" $A", 100000) + " /\n",
		"a here-document":      "FROM base\nENV A=" + strings.Repeat("x", 60000) + "\nCOPY <<E /\n" + strings.Repeat("$A", 1000) + "\nE\n",
		"many sources":         "FROM base\nCOPY" + strings.Repeat(" a", 100000) + " /\n",
		"a long command":       "FROM base\nRUN " + strings.Repeat("x", 200000) + "\n",
		"triggers of triggers": "FROM base AS s\n" + strings.Repeat("ONBUILD RUN x\n", 200) + strings.Repeat("FROM s\n", 300),
	} {
		began := time.Now()
		_, err := New([]byte(file), Options{Image: images})
		if !errors.Is(err, sbxerr.Dockerfile) {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s took %s", name, d)
		}
	}
}
