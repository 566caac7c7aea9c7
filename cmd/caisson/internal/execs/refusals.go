package execs

import (
	"net"
	"strconv"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// refusedLine names the refused destinations and the flags that allow them. It is empty
// without any.
func refusedLine(result *caissonv1.Result) string {
	list := result.Refusals
	if len(list) == 0 {
		return ""
	}
	var targets, flags []string
	seen := map[string]bool{}
	for _, r := range list {
		if r.Name == "" {
			return "refused: the sandbox has no network (mode none). Allow a host with --allow HOST, when you run or create it"
		}
		target := r.Name
		switch {
		case r.Port != 0:
			target = net.JoinHostPort(r.Name, strconv.Itoa(int(r.Port)))
		case net.ParseIP(r.Name) == nil: // else a packet of a protocol without ports
			target += " (lookup)"
		}
		targets = append(targets, target)
		if r.Needs != "" && !seen[r.Needs] {
			seen[r.Needs] = true
			flags = append(flags, "--allow "+r.Needs)
		}
	}
	line := "refused: " + strings.Join(targets, ", ")
	switch {
	case len(flags) == 1 && len(targets) == 1:
		return line + ". Allow it with " + flags[0]
	case len(flags) > 0:
		return line + ". Allow with " + strings.Join(flags, " ")
	case result.GetSandbox().GetNetwork() == "bridge": // which has no policy
		return line + ". caisson spec --network bridge shows the rules"
	}
	return line + ". caisson policy check says why"
}
