package mcp

import (
	"net"
	"strconv"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// refusals says which destinations were refused while a command ran, and which rules would
// allow them. In the mode none the server's instructions say that nothing is reached.
func refusals(r *caissonv1.Result) (notes []string) {
	for _, refusal := range r.GetRefusals() {
		target := refusal.GetName()
		switch {
		case target == "":
			continue
		case refusal.GetPort() != 0:
			target = net.JoinHostPort(target, strconv.Itoa(int(refusal.GetPort())))
		}
		note := "the network refused " + target
		if needs := refusal.GetNeeds(); needs != "" {
			note += "; the user can allow it with --allow " + needs
		}
		notes = append(notes, note)
	}
	return notes
}
