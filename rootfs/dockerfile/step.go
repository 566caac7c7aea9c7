package dockerfile

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	mode "github.com/tonistiigi/dchapes-mode"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func (p *planner) step(i instruction, s Step) {
	s.Line, s.Text = i.line, i.text
	p.stage().Steps = append(p.stage().Steps, s)
}

// commandLine is the command of a line: a JSON array, or a script for the shell.
func (p *planner) commandLine(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return p.withShell(strings.Join(c.CmdLine, " "))
}

func (p *planner) withShell(script string) []string {
	shell := p.stage().Config.Shell
	if len(shell) == 0 {
		shell = []string{"/bin/sh", "-c"}
	}
	return append(slices.Clone(shell), script)
}

// scriptDir is where a RUN finds a here-document that is a program.
const scriptDir = "/tmp/"

func (p *planner) run(i instruction, c *instructions.RunCommand) error {
	for _, flag := range c.FlagsUsed {
		if flag != "mount" {
			return lineError(i.line, "RUN --%s is not supported: give the build the flags of caisson run", sbxerr.Clip(flag))
		}
	}
	config := p.stage().Config
	r := Run{Dir: config.WorkingDir, User: config.User, Env: p.runEnv()}
	var ok bool
	if r.Args, r.Script, ok = p.document(c.ShellDependantCmdLine); !ok {
		r.Args = p.commandLine(c.ShellDependantCmdLine)
	}
	if len(c.CmdLine) == 0 || slices.Equal(c.CmdLine, []string{""}) {
		return lineError(i.line, "RUN has no command")
	}
	for _, arg := range r.Args {
		if len(arg) > maxArgument {
			return lineError(i.line, "the command has %d bytes, more than %d: put it into a file of the context", len(arg), maxArgument)
		}
	}
	var err error
	if r.Mounts, err = p.mounts(i, c); err != nil {
		return err
	}
	p.step(i, Step{Run: &r})
	return nil
}

// document is the command of a line with here-documents. A single one is a script, for the
// shell or for the program that its first line names. Several are read by the shell.
func (p *planner) document(c instructions.ShellDependantCmdLine) (args []string, script string, ok bool) {
	if len(c.Files) == 0 || len(c.CmdLine) != 1 || !c.PrependShell {
		return nil, "", false
	}
	if parser.MustParseHeredoc(c.CmdLine[0]) == nil {
		var b strings.Builder
		b.WriteString(c.CmdLine[0])
		for _, file := range c.Files {
			b.WriteString("\n" + file.Data + file.Name)
		}
		return p.withShell(b.String()), "", true
	}
	data := c.Files[0].Data
	if c.Files[0].Chomp {
		data = parser.ChompHeredocContent(data)
	}
	if strings.HasPrefix(data, "#!") {
		return []string{scriptDir + path.Base(c.Files[0].Name)}, data, true
	}
	return p.withShell(data), "", true
}

func (p *planner) workdir(i instruction, dir string) error {
	if dir == "" {
		return lineError(i.line, "WORKDIR is empty")
	}
	config := &p.stage().Config
	config.WorkingDir = path.Clean(p.absolute(dir))
	p.step(i, Step{Dir: &Dir{Name: config.WorkingDir, User: config.User}})
	return nil
}

// absolute resolves a path against the working directory. A slash at the end stays.
func (p *planner) absolute(name string) string {
	isDir := strings.HasSuffix(name, "/") || name == "." || name == "" || strings.HasSuffix(name, "/.")
	if !path.IsAbs(name) {
		name = path.Join("/", p.stage().Config.WorkingDir, name)
	}
	if name = path.Clean(name); isDir && name != "/" {
		name += "/"
	}
	return name
}

func (p *planner) copyFiles(i instruction, c *instructions.CopyCommand) error {
	if len(c.ExcludePatterns) > 0 || c.Parents {
		return lineError(i.line, "COPY --exclude and --parents are not supported: use .dockerignore, or several COPY")
	}
	stage, image := -1, ""
	if c.From != "" {
		var err error
		if stage, image, err = p.source(i, c.From); err != nil {
			return err
		}
	}
	return p.files(i, Copy{Stage: stage, Image: image, Owner: c.Chown, Mode: c.Chmod}, c.SourcesAndDest)
}

func (p *planner) files(i instruction, c Copy, s instructions.SourcesAndDest) error {
	if n := len(s.SourcePaths) + len(s.SourceContents) + len(c.Downloads); n > maxSources {
		return lineError(i.line, "%s has %d sources: at most %d", i.name(), n, maxSources)
	}
	if err := checkMode(i, c.Mode); err != nil {
		return err
	}
	c.Sources, c.Dest = s.SourcePaths, p.absolute(s.DestPath)
	for _, t := range s.SourceContents {
		c.Texts = append(c.Texts, Text{Name: t.Path, Content: t.Data})
	}
	p.step(i, Step{Copy: &c})
	return nil
}

// checkMode refuses what --chmod does not take.
func checkMode(i instruction, text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil {
		_, err = mode.Parse(text)
	} else if n > 0o7777 {
		err = strconv.ErrRange
	}
	if err != nil {
		return lineError(i.line, "--chmod=%s: give octal digits, such as 755, or letters, such as u=rwX,go=rX", sbxerr.Clip(text))
	}
	return nil
}
