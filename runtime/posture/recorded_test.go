package posture

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var record = flag.Bool("record", false, "TestRealSandbox writes testdata/recorded anew")

// recorded is a /proc/<pid> in memory: "read status", "readlink ns/pid", "names
// task" and "mountID root" to what the kernel answered.
type recorded map[string]string

func (r recorded) get(call, name string) (string, error) {
	text, ok := r[call+" "+name]
	if !ok {
		return "", fmt.Errorf("%s %q: %w", call, name, os.ErrNotExist)
	}
	return text, nil
}

func (r recorded) read(name string) (string, error)     { return r.get("read", name) }
func (r recorded) readlink(name string) (string, error) { return r.get("readlink", name) }

func (r recorded) names(dir string) ([]string, error) {
	text, err := r.get("names", dir)
	return strings.Fields(text), err
}

func (r recorded) mountID(name string) (uint64, error) {
	text, err := r.get("mountID", name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// recorder notes what it passes on.
type recorder struct {
	files
	notes recorded
}

func (r recorder) read(name string) (string, error) {
	text, err := r.files.read(name)
	if err == nil {
		r.notes["read "+name] = text
	}
	return text, err
}

func (r recorder) readlink(name string) (string, error) {
	text, err := r.files.readlink(name)
	if err == nil {
		r.notes["readlink "+name] = text
	}
	return text, err
}

func (r recorder) names(dir string) ([]string, error) {
	names, err := r.files.names(dir)
	if err == nil {
		r.notes["names "+dir] = strings.Join(names, " ")
	}
	return names, err
}

func (r recorder) mountID(name string) (uint64, error) {
	id, err := r.files.mountID(name)
	if err == nil {
		r.notes["mountID "+name] = strconv.FormatUint(id, 10)
	}
	return id, err
}

const section = "=== "

// nul stands for the zero byte, so that the files stay text.
const nul = "<nul>"

func (r recorded) save(t *testing.T, name string) {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(r)) {
		text := strings.ReplaceAll(r[key], "\x00", nul)
		fmt.Fprintf(&b, "%s%s\n%s\n", section, key, text)
	}
	must(t, os.WriteFile(filepath.Join("testdata/recorded", name), []byte(b.String()), 0o644))
}

func loadRecorded(t testing.TB, name string) recorded {
	data, err := os.ReadFile(filepath.Join("testdata/recorded", name))
	must(t, err)
	r := recorded{}
	for _, part := range strings.Split("\n"+strings.TrimSuffix(string(data), "\n"), "\n"+section)[1:] {
		key, text, _ := strings.Cut(part, "\n")
		r[key] = strings.ReplaceAll(text, nul, "\x00")
	}
	return r
}

// recordSandbox writes what Check reads of s and of this process. Mounts and
// groups of the recording machine that no comparison looks at are left out.
func recordSandbox(t *testing.T, s *sandbox) {
	dir, err := openProcess(s.pid, s.pidfd)
	must(t, err)
	process := recorder{dir, recorded{}}
	_, err = readLive(process)
	must(t, err)
	must(t, dir.close())
	process.notes.save(t, "live.txt")

	h, err := readHost(Declared{Spec: s.spec})
	must(t, err)
	own, err := os.OpenFile("/proc/thread-self", os.O_RDONLY, 0)
	must(t, err)
	self := recorder{procDir{own}, recorded{}}
	_, err = surroundingsOf(self)
	must(t, err)
	must(t, own.Close())
	self.notes["read mountinfo"] = keepLines(self.notes["read mountinfo"], func(line string) bool {
		m, err := parseMount(line)
		return err == nil && (slices.Contains([]string{"/", "/proc", "/sys", "/dev", "/dev/shm", "/dev/pts"}, m.point) || strings.HasPrefix(m.point, s.top))
	})
	self.notes["read cgroup"] = "0::/\n"
	self.notes["netns"], self.notes["userns"] = h.joined[specs.NetworkNamespace], h.joined[specs.UserNamespace]
	var exists []string
	for p, is := range h.exists {
		if is {
			exists = append(exists, p)
		}
	}
	slices.Sort(exists)
	self.notes["nodes"] = h.nodes
	self.notes["exists"] = strings.Join(exists, " ")
	self.notes.save(t, "host.txt")

	spec := *s.spec
	linux := *s.spec.Linux
	linux.Seccomp = nil // long, and not compared
	spec.Linux = &linux
	text, err := json.MarshalIndent(spec, "", " ")
	must(t, err)
	must(t, os.WriteFile("testdata/recorded/spec.json", append(text, '\n'), 0o644))
}

func keepLines(text string, keep func(string) bool) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if keep(strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// scene is a recorded sandbox that a test may change before it is compared.
type scene struct {
	declared Declared
	live     recorded
	own      recorded
}

func loadScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{live: loadRecorded(t, "live.txt"), own: loadRecorded(t, "host.txt")}
	text, err := os.ReadFile("testdata/recorded/spec.json")
	must(t, err)
	s.declared = Declared{PID: 1, Spec: new(specs.Spec), Listener: pid1, Sockets: 1}
	must(t, json.Unmarshal(text, s.declared.Spec))
	return s
}

func (s *scene) compare() ([]Result, error) {
	l, err := readLive(s.live)
	if err != nil {
		return nil, err
	}
	around, err := surroundingsOf(s.own)
	if err != nil {
		return nil, err
	}
	h := host{Surroundings: around}
	if !s.declared.Unisolated {
		h.joined = joinedOf(s)
	}
	h.exists = map[string]bool{}
	h.nodes = s.own["nodes"]
	for _, p := range strings.Fields(s.own["exists"]) {
		h.exists[p] = true
	}
	results := compare(want{Declared: s.declared, host: h, live: l})
	return results, differences(results)
}

func joinedOf(s *scene) map[specs.LinuxNamespaceType]string {
	return map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: s.own["netns"], specs.UserNamespace: s.own["userns"]}
}
