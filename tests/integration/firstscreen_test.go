package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// inspect shows a new sandbox on one screen: the fields that have a value. Every field is in
// --json.
func TestInspectIsBrief(t *testing.T) {
	t.Parallel()
	id := strings.TrimSpace(daemon.Run(t, "create", "--allow", "github.com", "--label", "a=b", "--publish", "0:8080").Stdout)
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", id) })
	short, whole := daemon.Run(t, "inspect", id).Stdout, daemon.Run(t, "inspect", "--json", id).Stdout
	var brief, every map[string]any
	for text, v := range map[string]*map[string]any{short: &brief, whole: &every} {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	shown, all := brief["sandbox"].(map[string]any), every["sandbox"].(map[string]any)
	if lines := strings.Count(short, "\n"); lines > 28 || lines != len(brief)+len(shown)+3 {
		t.Errorf("%d lines of %d fields:\n%s", lines, len(brief)+len(shown), short)
	}
	for name, value := range all {
		if _, shown := shown[name]; !shown && value != nil && value != "" && value != false {
			if list, ok := value.([]any); !ok || len(list) > 0 {
				t.Errorf("%s is left out: %v", name, value)
			}
		}
	}
	if _, ok := all["parent"]; !ok {
		t.Errorf("--json leaves fields out:\n%s", whole)
	}
}

// completeLine is what bash offers for each line that a person has typed.
const completeLine = `source <(caisson completion bash)
declare -F _init_completion && exit 1
for COMP_LINE in "$@"; do
	COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
	__start_caisson 2>/dev/null
	echo "${COMPREPLY[*]}"
done`

// Completion works in a bash that has no package for it.
func TestBareBashCompletion(t *testing.T) {
	t.Parallel()
	daemon.Run(t, "create", "--name", "barebash")
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", "barebash") })
	lines := map[string]string{
		"caisson insp":                 "inspect",
		"caisson inspect bareb":        "barebash",
		"caisson run --image=bas":      "base",
		"caisson run --image bas":      "base",
		"caisson ls --state ":          "creating running paused stopping exited",
		"caisson cp barebash:/etc/hos": "/etc/hostname /etc/hosts",
	}
	args := []string{"--norc", "--noprofile", "-c", completeLine, "bash"}
	var want strings.Builder
	for line, offered := range lines {
		args = append(args, line)
		want.WriteString(offered + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Env = []string{"CAISSON_SOCKET=" + daemon.Socket, "PATH=" + need.Bin(t) + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != want.String() {
		t.Errorf("%v: bash offers\n%s\nand not\n%s\nfor %q", err, out, &want, args[5:])
	}
}
