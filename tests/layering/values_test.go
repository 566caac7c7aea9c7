package layering

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/settings"
)

// constants say where the daemon has the values of a set: the lines of files that match.
var constants = map[string]struct {
	line  string
	files []string
}{
	"SandboxState":   {`^\tState\w+ +State = |^const StateRemoved State = `, []string{"runtime/state.go", "runtime/usagekept.go"}},
	"ProcessState":   {`^\tExec\w+ +ExecState = `, []string{"runtime/exectypes.go"}},
	"Network":        {`^\tMode\w+ +Mode = `, []string{"netns/mode.go"}},
	"Isolation":      {`^\tIsolation\w+ += `, []string{"runtime/plan/unisolated.go"}},
	"Reason":         {`^\tReason\w+ +Reason = `, []string{"runtime/types.go"}},
	"Source":         {`\bSource: "`, []string{"runtime/adoptexecs.go", "runtime/result.go"}},
	"Cause":          {`^\tCause\w+ +Cause = `, []string{"runtime/endcause.go"}},
	"Limit":          {`^\t\t\{"memory", r\.OOMKilled`, []string{"runtime/limitshit.go"}},
	"LeftoverKind":   {`^\tkind\w+ += "|^const kindForeign|^\t\t\{"\w+", "(no sandbox|its daemon)`, []string{"runtime/reconcile.go", "runtime/quarantine.go"}},
	"TemplateState":  {`^\tState\w+ += "`, []string{"runtime/templates/service.go"}},
	"FileType":       {`names := .*"device"`, []string{"initproto/files/message.go"}},
	"FileChange":     {`names := .*"overflow"`, []string{"initproto/files/message.go"}},
	"ImageSource":    {`^\tKind\w+ += `, []string{"rootfs/image/types.go"}},
	"LayerState":     {`^\t(Waiting|Fetching|Fetched|Stored) += |State: "present"`, []string{"runtime/registry/session.go", "runtime/imageservice/pull.go"}},
	"AttemptKind":    {`^\t\w+ +Kind = `, []string{"runtime/traffic/entry.go"}},
	"AttemptVerdict": {`^\t\w+ +Verdict = `, []string{"gateway/attempt/attempt.go", "gateway/lookup/query.go"}},
	"Support":        {`^\t(Enforced|BestEffort|Unsupported) += `, []string{"runtime/doctor/capabilities.go"}},
	"CheckStatus":    {`^\t(OK|Warn|Fail|Unknown) += `, []string{"runtime/doctor/doctor.go"}},
	"ChangeKind":     {`^\t\w+ +Kind = `, []string{"runtime/changes/change.go"}},
	"ConflictSide":   {`^\t\w+ +Side = `, []string{"runtime/apply/plan.go"}},
	"UsageScope":     {`^\t\w+ +Scope = `, []string{"gateway/route/budget/limit.go"}},
	"RootFS":         {`^const rootfsRW = |mode != "ro" && mode != rootfsRW`, []string{"runtime/plan/disk.go"}},
	"OnIdle":         {`^\t(Remove|Pause) += `, []string{"runtime/idle/clock.go"}},
	"PausedBy":       {`^\tBy\w+ += `, []string{"runtime/idle/clock.go"}},
	"WorkspaceMode":  {`^\tcase "", "rw", "ro", modeCow, modeClone:|^const mode(Cow|Clone) = `, []string{"runtime/plan/mounts.go", "runtime/plan/cow.go", "runtime/plan/clone.go"}},
	"MountType":      {`^\tcase "\w+":$|^const (Volume|Snapshot)Type = `, []string{"runtime/plan/mounts.go"}},
	"SharedLimit":    {`^var limitNames = `, []string{"runtime/limittally.go"}},
	"Stream":         {`Contains\(\[\]string\{"", "stdout"`, []string{"runtime/execs.go"}},
	"FileAction":     {`events\.Data\{Action: "`, []string{"runtime/fileaccess.go"}},
	"ErrorClass":     {`^\tClass\w+ +Class = `, []string{"api/sbxerr/codes.go"}},
}

// TestClosedSets: the values that the API's document and both SDKs name are those of the daemon.
func TestClosedSets(t *testing.T) {
	compared := 0
	for _, set := range settings.Sets {
		from, ok := constants[set.Name]
		if !ok {
			continue
		}
		compared++
		want := slices.Clone(set.Values)
		if set.Name == "FileType" || set.Name == "FileChange" {
			want = append(want, "unknown") // of no type
		}
		if set.Name == "FileType" {
			want = append(want, "link") // of a copy in alone
		}
		slices.Sort(want)
		if got := quotedIn(t, regexp.MustCompile(from.line), from.files); !slices.Equal(got, want) {
			t.Errorf("%s: %s has %q, api/settings/values.go has %q", set.Name, strings.Join(from.files, ", "), got, want)
		}
	}
	if compared != len(constants) || compared != len(settings.Sets)-1 { // LiveNetwork is Network without what an update refuses
		t.Errorf("%d of %d sets are compared", compared, len(settings.Sets)-1)
	}
}

var quotedWord = regexp.MustCompile(`"([^" ]+)"`)

// quotedIn returns the words in quotes on the lines that match, sorted, before any comment.
func quotedIn(t *testing.T, line *regexp.Regexp, files []string) (words []string) {
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.SplitSeq(string(text), "\n") {
			code, _, _ := strings.Cut(l, "//")
			if !line.MatchString(code) {
				continue
			}
			for _, m := range quotedWord.FindAllStringSubmatch(code, -1) {
				words = append(words, m[1])
			}
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}
