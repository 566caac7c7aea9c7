package dockerfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
)

// The parts of a plan, which another package defines: the daemon reads plans, and no files.
type (
	Platform = buildplan.Platform
	Plan     = buildplan.Plan
	Warning  = buildplan.Warning
	Config   = buildplan.Config
	Stage    = buildplan.Stage
	Step     = buildplan.Step
	Run      = buildplan.Run
	Dir      = buildplan.Dir
	Copy     = buildplan.Copy
	Text     = buildplan.Text
	Download = buildplan.Download
	Mount    = buildplan.Mount
)

// Options say which image is made of a file.
type Options struct {
	Args     map[string]string // values of ARG
	Target   string            // name or number of the stage; empty: the last
	Platform Platform
	Secrets  []string // ids of those that the build was given
	// Image returns the configuration of an image that FROM names.
	Image func(name string) (Config, error)
}

// New plans the build of file, or reports why it cannot be built.
func New(file []byte, o Options) (*Plan, error) {
	list, escape, err := parse(file)
	if err != nil {
		return nil, err
	}
	p := planner{options: o, lex: shell.NewLex(escape), used: map[string]bool{}, warned: map[string]bool{}, budget: maxExpanded}
	p.global = o.globals(list)
	var reasons sbxerr.Reasons
	for _, i := range list {
		reasons.Add(p.add(i))
		if p.tooMany() {
			break
		}
	}
	if err := reasons.Err(); err != nil {
		return nil, err
	}
	if len(p.plan.Stages) == 0 {
		return nil, sbxerr.New(sbxerr.Dockerfile, op, "there is no FROM")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Args)) {
		if !p.used[name] && !isPredefined(name) {
			p.warn(instruction{}, fmt.Sprintf("the build argument %q is no ARG of the file", sbxerr.Clip(name)))
		}
	}
	p.plan.Proxies = o.proxyEnv()
	return p.target()
}

// planner holds the state of the stage that is being planned.
type planner struct {
	options Options
	lex     *shell.Lex
	plan    Plan
	args    []map[string]string // of each stage
	global  map[string]string   // ARG before the first FROM, and what the platform gives
	used    map[string]bool     // build arguments
	warned  map[string]bool
	budget  int  // bytes that variables may still add
	added   int  // instructions so far
	cmdSet  bool // CMD came in this stage
	inFrom  bool
}

// arguments are those of the stage that is being planned.
func (p *planner) arguments() map[string]string { return p.args[len(p.args)-1] }

func (p *planner) stage() *Stage { return &p.plan.Stages[len(p.plan.Stages)-1] }

func (p *planner) tooMany() bool { return p.added > maxInstructions }

// warn adds a warning. One of each kind is enough.
func (p *planner) warn(i instruction, text string) {
	if !p.warned[text] {
		p.warned[text] = true
		p.plan.Warnings = append(p.plan.Warnings, Warning{Line: i.line, Text: text})
	}
}

func (p *planner) add(i instruction) error {
	if p.added++; p.tooMany() {
		return lineError(i.line, "with the ONBUILD of its images, the file has more than %d instructions", maxInstructions)
	}
	if from, ok := i.command.(*instructions.Stage); ok {
		return p.from(i, from)
	}
	if arg, ok := i.command.(*instructions.ArgCommand); ok {
		return p.arg(i, arg)
	}
	if len(p.plan.Stages) == 0 {
		return lineError(i.line, "%s comes before the first FROM", i.name())
	}
	if err := p.expandAll(i); err != nil {
		return err
	}
	return p.command(i)
}

// expandAll replaces the variables of an instruction, where it has any.
func (p *planner) expandAll(i instruction) error {
	one := func(word string) (string, error) { return p.expand(i.line, word) }
	if c, ok := i.command.(instructions.SupportsSingleWordExpansion); ok {
		if err := c.Expand(one); err != nil {
			return coded(i, err)
		}
	}
	raw, ok := i.command.(instructions.SupportsSingleWordExpansionRaw)
	if !ok {
		return nil
	}
	lex := p.lex
	defer func() { p.lex = lex }()
	p.lex = shell.NewLex('\\') // the text of a here-document keeps its quotes
	p.lex.SkipProcessQuotes = true
	return coded(i, raw.ExpandRaw(one))
}

// coded gives an error of package instructions its line.
func coded(i instruction, err error) error {
	if err == nil || sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	return lineError(i.line, "%s", sbxerr.Clip(err.Error()))
}

func (p *planner) command(i instruction) error {
	config := &p.stage().Config
	switch c := i.command.(type) {
	case *instructions.EnvCommand:
		return p.env(i, c)
	case *instructions.LabelCommand:
		return p.label(i, c)
	case *instructions.RunCommand:
		return p.run(i, c)
	case *instructions.CopyCommand:
		return p.copyFiles(i, c)
	case *instructions.AddCommand:
		return p.addFiles(i, c)
	case *instructions.WorkdirCommand:
		return p.workdir(i, c.Path)
	case *instructions.UserCommand:
		if config.User = c.User; c.User == "" {
			return lineError(i.line, "USER is empty")
		}
	case *instructions.ShellCommand:
		config.Shell = c.Shell
	case *instructions.CmdCommand:
		config.Cmd, p.cmdSet = p.commandLine(c.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		if config.Entrypoint = p.commandLine(c.ShellDependantCmdLine); !p.cmdSet { // that of the base is for another program
			config.Cmd = nil
		}
	case *instructions.OnbuildCommand:
		return p.onBuild(i, c.Expression)
	default:
		return p.ignore(i)
	}
	return nil
}

// ignored says why instructions have no effect.
var ignored = map[string]string{
	"EXPOSE":      "EXPOSE has no effect: give ports when a sandbox is made, with --publish",
	"VOLUME":      "VOLUME has no effect: give volumes when a sandbox is made, with --volume",
	"HEALTHCHECK": "HEALTHCHECK has no effect: sandboxes are not checked",
	"STOPSIGNAL":  "STOPSIGNAL has no effect: a command that is stopped gets TERM, and then KILL",
	"MAINTAINER":  "MAINTAINER has no effect: use LABEL",
}

// ignore takes an instruction without effect, with one warning.
func (p *planner) ignore(i instruction) error {
	c, ok := i.command.(instructions.Command)
	if !ok {
		return lineError(i.line, "%s is not supported", i.name())
	}
	why, ok := ignored[strings.ToUpper(c.Name())]
	if !ok {
		return lineError(i.line, "%s is not supported", i.name())
	}
	p.warn(i, why)
	return nil
}
