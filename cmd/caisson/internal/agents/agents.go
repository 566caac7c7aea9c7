// Package agents has the verbs that serve the programs of agents: mcp and plug.
package agents

import "github.com/caisson-run/caisson/cmd/caisson/internal/cli"

// Verbs are those of this package.
var Verbs = []cli.Verb{{Name: "mcp", Command: mcpCommand}, {Name: "plug", Command: plugCommand}}
