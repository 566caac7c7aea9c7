package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/openapi"
	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

var updateExamples = flag.Bool("update-examples", false, "record the examples of the page of routes again")

// examplesFile has one request and its answer for each call of the API, recorded by
// TestRouteExamples. The page of routes shows them.
const examplesFile = "../../api/openapi/examples.json"

// example is a call as its page shows it.
type example struct {
	Call    string   `json:"call"` // as in the OpenAPI document
	Request string   `json:"request"`
	Answer  []string `json:"answer"` // lines
}

// exchange is one call of the scenario, in which later calls need earlier ones.
type exchange struct {
	call, method, path, body string
	raw                      []byte // in place of body
	again                    bool   // raw is the answer to the call before
	lines                    int    // of a stream without an end, to wait for
}

// scenario has a daemon's every call. Sandboxes, commands and images have the names that a
// person would give them.
func scenario(layout, tree []byte, image, dir, key string) []exchange {
	return []exchange{
		{call: "SystemPing", path: "/v1/ping"},
		{call: "SystemVersion", path: "/v1/version"},
		{call: "SystemCapabilities", path: "/v1/capabilities"},
		{call: "SystemDoctor", path: "/v1/doctor"},
		{call: "SandboxSpec", method: "POST", path: "/v1/spec", body: `{"exec":{"args":["true"]}}`},
		{call: "SandboxRun", method: "POST", path: "/v1/run", body: `{"sandbox":{"image":"base"},"exec":{"shell":"echo hello; exit 3"}}`},
		{call: "SandboxCreate", method: "POST", path: "/v1/sandboxes", body: `{"name":"agent","network":"allow","allow":["example.com"],"ensure":true}`},
		{call: "SandboxList", path: "/v1/sandboxes?states=running"},
		{call: "SandboxInspect", path: "/v1/sandboxes/agent"},
		{call: "SandboxUpdate", method: "PATCH", path: "/v1/sandboxes/agent", body: `{"memory_bytes":536870912,"labels":{"team":"blue"}}`},
		{call: "SystemInfo", path: "/v1/info"},

		{call: "ExecStart", method: "POST", path: "/v1/sandboxes/agent/execs?wait=true", body: `{"exec":{"args":["uname","-s"],"timeout":"10s"}}`},
		{method: "POST", path: "/v1/sandboxes/agent/execs", body: `{"exec":{"args":["cat"],"stdin":true}}`},
		{call: "ExecSendInput", method: "POST", path: "/v1/sandboxes/agent/execs/2/input", body: `{"offset":"0","data":"aGVsbG8K"}`},
		{call: "ExecStreamInput", method: "PUT", path: "/v1/sandboxes/agent/execs/2/input?offset=6&close=true", raw: []byte("more\n")},
		{call: "ExecWait", path: "/v1/sandboxes/agent/execs/2/wait"},
		{call: "ExecAttach", method: "POST", path: "/v1/sandboxes/agent/execs/2/attach?stdout_offset=6"},
		{method: "POST", path: "/v1/sandboxes/agent/execs", body: `{"exec":{"args":["sleep","1000"],"tty":{"rows":24,"cols":80}}}`},
		{call: "ExecResize", method: "POST", path: "/v1/sandboxes/agent/execs/3/resize", body: `{"size":{"rows":40,"cols":120}}`},
		{call: "ExecSignal", method: "POST", path: "/v1/sandboxes/agent/execs/3/signal", body: `{"signal":"TERM"}`},
		{path: "/v1/sandboxes/agent/execs/3/wait"},
		{call: "ExecList", path: "/v1/sandboxes/agent/execs"},
		{call: "SandboxLogs", path: "/v1/sandboxes/agent/logs?exec_id=2"},

		{call: "FileMakeDir", method: "PUT", path: "/v1/sandboxes/agent/dirs/tmp/notes", body: `{"make_parents":true}`},
		{call: "FileWatchFiles", path: "/v1/sandboxes/agent/watch/tmp/notes?recursive=true", lines: 1},
		{call: "FileWriteFile", method: "PUT", path: "/v1/sandboxes/agent/files/tmp/notes/note.txt?mode=420", raw: []byte("a note\n")},
		{call: "FileReadFile", path: "/v1/sandboxes/agent/files/tmp/notes/note.txt"},
		{call: "FileStat", path: "/v1/sandboxes/agent/stat/tmp/notes/note.txt"},
		{call: "FileMoveFile", method: "POST", path: "/v1/sandboxes/agent/move", body: `{"from":"/tmp/notes/note.txt","to":"/tmp/notes/kept.txt"}`},
		{call: "FileListDir", path: "/v1/sandboxes/agent/dirs/tmp/notes"},
		{call: "FileCopyIn", method: "PUT", path: "/v1/sandboxes/agent/archive/tmp/notes", raw: tree},
		{call: "FileCopyOut", path: "/v1/sandboxes/agent/archive/tmp/notes"},
		{call: "FileRemoveFile", method: "DELETE", path: "/v1/sandboxes/agent/files/tmp/notes?recursive=true"},

		{call: "NetworkCheckPolicy", method: "POST", path: "/v1/policy/check", body: `{"policy":{"ref":"agent"},"target":"https://elsewhere.example/"}`},
		{call: "NetworkExplainPolicy", method: "POST", path: "/v1/policy/explain", body: `{"policy":{"network":"allow","allow":["*.example.com"]}}`},
		{method: "POST", path: "/v1/sandboxes/agent/execs?wait=true", body: `{"exec":{"shell":"nslookup elsewhere.example || true"}}`},
		{call: "NetworkTraffic", path: "/v1/sandboxes/agent/traffic"},
		{call: "NetworkUsage", path: "/v1/usage"},
		{method: "POST", path: "/v1/sandboxes/agent/execs?wait=true", body: `{"exec":{"shell":"echo hello > /tmp/index.html; busybox httpd -p 8000 -h /tmp"}}`},
		{call: "NetworkForward", method: "POST", path: "/v1/sandboxes/agent/forward/8000", raw: []byte("GET /index.html HTTP/0.9\n\n")},
		{call: "NetworkLearnPolicy", path: "/v1/sandboxes/agent/learned"},

		{method: "POST", path: "/v1/sandboxes/agent/execs?wait=true", body: `{"exec":{"args":["sleep","1.5"]}}`}, // for a sample
		{call: "SandboxStats", path: "/v1/stats?refs=agent", lines: 1},
		{call: "SandboxHistory", path: "/v1/sandboxes/agent/history"},
		{call: "SandboxPause", method: "POST", path: "/v1/sandboxes/agent/pause"},
		{call: "SandboxResume", method: "POST", path: "/v1/sandboxes/agent/resume"},
		{call: "SandboxClean", method: "POST", path: "/v1/sandboxes/agent/clean"},
		{call: "SandboxRestart", method: "POST", path: "/v1/sandboxes/agent/restart"},
		{call: "SandboxStop", method: "POST", path: "/v1/sandboxes/agent/stop", body: `{"grace":"2s"}`},
		{call: "SandboxWait", path: "/v1/sandboxes/agent/wait"},
		{call: "SandboxRemove", method: "DELETE", path: "/v1/sandboxes/agent?force=true"},
		{call: "SandboxCleanup", method: "POST", path: "/v1/cleanup", body: `{"dry_run":true}`},

		{call: "ImageImportImage", method: "PUT", path: "/v1/images/tools", raw: layout},
		{call: "ImagePullImage", method: "POST", path: "/v1/images/pull", body: fmt.Sprintf(`{"name":%q}`, image)},
		{call: "ImageFromHost", method: "POST", path: "/v1/images/from-host", body: `{"name":"little","paths":["/usr/bin/true"]}`},
		{call: "ImageBuildImage", method: "POST", path: "/v1/images/build", body: `{"name":"built","dockerfile":"` + "RlJPTSBiYXNlCkVOViBBPTEK" + `"}`},
		{call: "ImageTagImage", method: "POST", path: "/v1/images/tag", body: `{"name":"tools","new_name":"tools:stable"}`},
		{call: "ImageListImages", path: "/v1/images"},
		{call: "ImageInspectImage", path: "/v1/images/tools"},
		{call: "ImageImageUsage", path: "/v1/image-usage"},
		{call: "ImageSaveImages", method: "POST", path: "/v1/images/save", body: `{"names":["tools"]}`},
		{call: "ImagePruneImages", method: "POST", path: "/v1/images/prune", body: `{"unused":true,"dry_run":true}`},
		{call: "ImageRemoveImage", method: "DELETE", path: "/v1/images/tools"},

		{call: "VolumeCreateVolume", method: "POST", path: "/v1/volumes", body: `{"name":"deps"}`},
		{call: "VolumeListVolumes", path: "/v1/volumes"},
		{call: "VolumeInspectVolume", path: "/v1/volumes/deps"},
		{call: "VolumePruneVolumes", method: "POST", path: "/v1/volumes/prune", body: `{"dry_run":true}`},
		{call: "VolumeRemoveVolume", method: "DELETE", path: "/v1/volumes/deps"},

		{call: "SecretListSecrets", path: "/v1/secrets"},
		{call: "SecretSetSecret", method: "PUT", path: "/v1/secrets/forge", body: fmt.Sprintf(`{"source":"file:%s"}`, key)},
		{call: "SecretRemoveSecret", method: "DELETE", path: "/v1/secrets/forge"},

		{call: "TemplateBuildTemplate", method: "POST", path: "/v1/templates/ready/build", body: `{}`},
		{call: "TemplateListTemplates", path: "/v1/templates"},
		{call: "TemplateInspectTemplate", path: "/v1/templates/ready"},
		{call: "TemplateRemoveTemplate", method: "DELETE", path: "/v1/templates/ready"},

		{method: "POST", path: "/v1/sandboxes", body: `{"name":"setup","rootfs":"rw","limits":{"disk_bytes":"67108864"}}`},
		{call: "SnapshotCreateSnapshot", method: "POST", path: "/v1/snapshots", body: `{"ref":"setup","name":"tools"}`},
		{call: "SnapshotRewind", method: "POST", path: "/v1/sandboxes/setup/rewind", body: `{"snapshot":"tools"}`},
		{call: "SnapshotListSnapshots", path: "/v1/snapshots"},
		{call: "SnapshotInspectSnapshot", path: "/v1/snapshots/tools"},
		{method: "POST", path: "/v1/sandboxes/setup/execs?wait=true", body: `{"exec":{"shell":"mkdir /workspace/src"}}`},
		{method: "POST", path: "/v1/snapshots", body: `{"ref":"setup","name":"later"}`},
		{call: "SnapshotDiffSnapshot", path: "/v1/snapshots/tools/diff?to=later"},
		{call: "SnapshotExportSnapshot", path: "/v1/snapshots/tools/export"},
		{call: "SnapshotImportSnapshot", method: "PUT", path: "/v1/snapshots/again", again: true},
		{call: "SnapshotRemoveSnapshot", method: "DELETE", path: "/v1/snapshots/tools"},
		{call: "SnapshotFork", method: "POST", path: "/v1/sandboxes/setup/fork", body: `{"count":2}`},
		{method: "POST", path: "/v1/sandboxes/setup/execs?wait=true", body: `{"exec":{"shell":"mkdir deps more"}}`},
		{method: "POST", path: "/v1/snapshots", body: `{"ref":"setup","name":"deps","path":"/workspace/deps"}`},
		{call: "SnapshotAttachSnapshot", method: "POST", path: "/v1/sandboxes/setup/snapshots", body: `{"snapshot":"deps","path":"/workspace/more"}`},

		{method: "POST", path: "/v1/sandboxes", body: `{"name":"late"}`},
		{call: "SandboxAttachWorkspace", method: "POST", path: "/v1/sandboxes/late/workspace", body: fmt.Sprintf(`{"workspace":{"dir":%q,"mode":"ro"}}`, dir)},
		{method: "POST", path: "/v1/sandboxes", body: fmt.Sprintf(`{"name":"trial","workspace":{"dir":%q,"mode":"cow"}}`, dir)},
		{method: "PUT", path: "/v1/sandboxes/trial/files/workspace/note.txt", raw: []byte("a note\n")},
		{call: "WorkspaceDiff", path: "/v1/sandboxes/trial/diff"},
		{method: "POST", path: "/v1/sandboxes", body: fmt.Sprintf(`{"name":"ended","workspace":{"dir":%q,"mode":"cow"}}`, dir)},
		{method: "PUT", path: "/v1/sandboxes/ended/files/workspace/other.txt", raw: []byte("a note\n")},
		{method: "DELETE", path: "/v1/sandboxes/ended?force=true"},
		{call: "WorkspaceListChangesets", path: "/v1/changesets"},
		{call: "WorkspaceDiscardChangeset", method: "DELETE", path: "/v1/changesets/ended"},
		{call: "WorkspaceApply", method: "POST", path: "/v1/sandboxes/trial/apply", body: `{"paths":["note.txt"]}`},

		{call: "EventWatch", path: "/v1/events?filter=type=sandbox.created"},
		{call: "SystemReloadConfig", method: "POST", path: "/v1/config/reload"},
	}
}

// TestRouteExamples: the page of routes shows a request and an answer of each call. Each
// request succeeds at a daemon, and the answer has the fields that the page shows.
func TestRouteExamples(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	s := newSource(t)
	key := filepath.Join(t.TempDir(), "models.key")
	if err := os.WriteFile(key, []byte("not-a-real-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartWith(t, s.config()+"sandboxes: {disk: 256M}\nsecrets: {models-key: \"file:"+key+"\"}\nprofiles: {ready: {setup: {run: [echo done]}}, agent: {routes: {gpt: {preset: openai, upstream: \"https://api.example.com/v1\", credential: models-key}}}}\n")
	layout := tarOf(t, ociLayout(t, "x"))
	image := s.host + "/tools:1"
	s.Push(t, "tools", "1", shell(t))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plain := strings.NewReplacer(dir, "/home/ann/app", key, "/etc/caisson/models.key", s.host, "registry.example.com", d.Root, "/var/lib/caisson", d.State, "/run/caisson", "//"+host+"/", "//host/")
	recorded := readExamples(t)
	covered := map[string]bool{}
	var list []example
	var answer []byte
	for _, x := range scenario(layout, tarOf(t, []file{{name: "in.txt", data: []byte("in"), mode: 0o644}}), image, dir, key) {
		if x.again {
			x.raw = answer
		}
		answer = x.send(t, d)
		if x.call == "" {
			continue
		}
		covered[x.call] = true
		e := example{x.call, plain.Replace(x.curl()), nil}
		for _, line := range shown(t, answer) {
			e.Answer = append(e.Answer, plain.Replace(line))
		}
		was := recorded[x.call]
		shown, now := shapes(t, was.Answer), shapes(t, e.Answer)
		switch same := was.Request == e.Request && maps.Equal(shown, now); {
		case same:
			e = was
		case !*updateExamples:
			t.Errorf("%s: the page shows %q, whose answer has\n%q\nThe scenario sends %q, whose answer has\n%q",
				x.call, was.Request, slices.Sorted(maps.Keys(shown)), e.Request, slices.Sorted(maps.Keys(now)))
		}
		list = append(list, e)
	}
	for _, call := range calls(t) {
		if !covered[call] {
			t.Errorf("%s has no example", call)
		}
	}
	if *updateExamples {
		writeExamples(t, list)
	}
}

// curl is x as a person would type it, after the name of the socket.
func (x exchange) curl() string {
	words := []string{"curl"}
	switch {
	case x.raw != nil:
		words = append(words, "-T", "FILE")
	case x.method != "" && (x.method != http.MethodPost || x.body == ""):
		words = append(words, "-X", x.method)
	}
	url := "http://caisson" + x.path
	if strings.ContainsAny(url, "?&*") {
		url = "'" + url + "'"
	}
	words = append(words, url)
	if x.body != "" {
		words = append(words, "-d", "'"+x.body+"'")
	}
	return strings.Join(words, " ")
}

// send returns the body of the answer. Of a stream without an end it is as many lines as x says.
func (x exchange) send(t *testing.T, d *harness.Daemon) []byte {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}}
	defer client.CloseIdleConnections()
	body := x.raw
	if body == nil {
		body = []byte(x.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), x.method, "http://caisson"+x.path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	if x.lines == 0 {
		_, err = io.Copy(&answer, res.Body)
	} else {
		buf := make([]byte, 64<<10)
		for err == nil && bytes.Count(answer.Bytes(), []byte("\n")) < x.lines {
			var n int
			n, err = res.Body.Read(buf)
			answer.Write(buf[:n])
		}
	}
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s, %v: %s", x.method, x.path, res.Status, err, answer.Bytes())
	}
	return answer.Bytes()
}

// shown returns the lines of an answer: its objects, each with short texts and lists of one
// element. Lines that look like an earlier one are left out.
func shown(t *testing.T, answer []byte) (lines []string) {
	t.Helper()
	known := map[string]bool{}
	if bytes.IndexByte(answer, 0) >= 0 {
		answer = []byte("(a tar)")
	}
	for line := range strings.Lines(string(answer)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "{") {
			var object any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			text, err := json.Marshal(short(object))
			if err != nil {
				t.Fatal(err)
			}
			line = string(text)
			if shape := fmt.Sprint(slices.Sorted(maps.Keys(shapes(t, []string{line})))); known[shape] {
				continue
			} else {
				known[shape] = true
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// longText is the most characters of a text that an example has.
const longText = 48

func short(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = short(value)
		}
		return v
	case []any:
		for i := range v {
			v[i] = short(v[i])
		}
		return v[:min(len(v), 1)]
	case string:
		if runes := []rune(v); len(runes) > longText {
			return string(runes[:longText-1]) + "…"
		}
	}
	return v
}

// hostDependent are fields that only some hosts have, or that depend on the moment.
var hostDependent = regexp.MustCompile(`io_|pressure|peak_memory|rlimit|warnings|cgroup_values|seccomp|report\.|layers\[`)

// shapes are the fields of lines, with their types.
func shapes(t *testing.T, lines []string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range lines {
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			collect(all, "", v)
		}
	}
	return all
}

func collect(all map[string]bool, path string, v any) {
	if hostDependent.MatchString(path) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			collect(all, path+"."+key, value)
		}
	case []any:
		for _, value := range v {
			collect(all, path+"[]", value)
		}
	default:
		all[fmt.Sprintf("%s: %T", path, v)] = true
	}
}

func readExamples(t *testing.T) map[string]example {
	t.Helper()
	data, err := os.ReadFile(examplesFile)
	if err != nil && !*updateExamples {
		t.Fatal(err)
	}
	var list []example
	if err := json.Unmarshal(data, &list); err != nil && !*updateExamples {
		t.Fatal(err)
	}
	all := map[string]example{}
	for _, e := range list {
		all[e.Call] = e
	}
	return all
}

func writeExamples(t *testing.T, list []example) {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(examplesFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// calls are those that the document describes, without the further routes of one.
func calls(t *testing.T) (all []string) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	if err := json.Unmarshal(openapi.JSON, &document); err != nil {
		t.Fatal(err)
	}
	for _, methods := range document.Paths {
		for _, m := range methods {
			if m.OperationID != "" && !strings.Contains(m.OperationID, "By") {
				all = append(all, m.OperationID)
			}
		}
	}
	slices.Sort(all)
	return all
}
