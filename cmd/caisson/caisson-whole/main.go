// Command caisson-whole is caisson with what takes time to load: the servers for agents, YAML
// and Go templates. caisson executes it where one of them is asked for.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"github.com/caisson-run/caisson/cmd/caisson/internal/agents"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/forms"
	"github.com/caisson-run/caisson/cmd/caisson/internal/verbs"
)

// Set when linked.
var (
	version = "dev"
	commit  = "unknown"
)

func program() cli.Program {
	return cli.Program{
		Version: version, Commit: commit,
		Groups:   verbs.Groups(agents.Verbs...),
		Template: func(text string) (cli.Form, error) { return forms.Template(text) },
		YAML:     forms.YAML,
	}
}

func main() { program().Main() }
