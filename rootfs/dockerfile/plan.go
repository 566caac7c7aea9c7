package dockerfile

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Plan is how an image is built.
type Plan struct {
	Stages []Stage // as far as the target needs them; the last one is the target
}

// Stage is what follows one FROM.
type Stage struct {
	Name   string // of AS; empty: none
	Image  string // name of the image that it begins with; empty: Base is a stage
	Base   int    // index of the stage that it begins with
	Line   int
	Text   string
	Steps  []Step
	Needed bool // the target needs it

	Config ocispec.ImageConfig // of the image at the end
}

// Step changes files of the image. Exactly one of Run, Copy and Dir is set.
type Step struct {
	Line int
	Text string
	Run  *Run
	Copy *Copy
	Dir  string // a directory that is made if it is not there
}

// Run is a command.
type Run struct {
	Args  []string // never through a shell
	Shell string   // a script for /bin/sh, instead of Args
	Env   []string
	Dir   string
	User  string // empty: root
}

// Copy copies files.
type Copy struct {
	Stage   int    // index of the stage that they come from; below 0: the context or Image
	Image   string // name of the image that they come from
	Sources []string
	Dest    string // absolute; with a slash at the end it is a directory
	Owner   string // user or user:group; empty: root
	Mode    int64  // below 0: as the files have it
}

// Options say which image is made of a file.
type Options struct {
	Args   map[string]string // values of ARG
	Target string            // name or number of the stage; empty: the last
	// Image returns the configuration of an image that FROM names.
	Image func(name string) (ocispec.ImageConfig, error)
}

// New plans the build of file, or reports why it cannot be built.
func New(file []byte, o Options) (*Plan, error) {
	list, escape, err := parse(file)
	if err != nil {
		return nil, err
	}
	p := planner{options: o, lex: shell.NewLex(escape), global: map[string]string{}, used: map[string]bool{}}
	var reasons sbxerr.Reasons
	for _, i := range list {
		reasons.Add(p.add(i))
	}
	if err := reasons.Err(); err != nil {
		return nil, err
	}
	if len(p.plan.Stages) == 0 {
		return nil, sbxerr.New(sbxerr.Dockerfile, op, "there is no FROM")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Args)) {
		if !p.used[name] {
			return nil, sbxerr.New(sbxerr.Dockerfile, op, "the build argument %q is no ARG of the file", sbxerr.Clip(name))
		}
	}
	return p.target()
}

// planner holds the state of the stage that is being planned.
type planner struct {
	options Options
	lex     *shell.Lex
	plan    Plan
	global  map[string]string // ARG before the first FROM
	args    map[string]string // ARG of the stage
	used    map[string]bool
	cmdSet  bool // CMD came in this stage
}

func (p *planner) stage() *Stage { return &p.plan.Stages[len(p.plan.Stages)-1] }

func (p *planner) add(i instruction) error {
	if len(p.plan.Stages) == 0 && i.name != "from" && i.name != "arg" {
		return lineError(i.line, "%s comes before the first FROM", strings.ToUpper(i.name))
	}
	switch i.name {
	case "from":
		return p.from(i)
	case "arg":
		return p.arg(i)
	case "env", "label":
		return p.pairs(i)
	case "run":
		return p.run(i)
	case "copy", "add":
		return p.copy(i)
	case "workdir":
		return p.workdir(i)
	case "user":
		return p.expandInto(&p.stage().Config.User, i, i.words[0])
	}
	p.command(i)
	return nil
}

func (p *planner) from(i instruction) error {
	name, err := p.expandWith(i, i.words[0], p.global)
	if err != nil {
		return err
	}
	s := Stage{Line: i.line, Text: i.text, Base: p.find(name)}
	if len(i.words) == 3 {
		if s.Name = strings.ToLower(i.words[2]); p.find(s.Name) >= 0 {
			return lineError(i.line, "there is another stage %q", sbxerr.Clip(s.Name))
		}
	}
	if s.Base >= 0 {
		s.Config = p.plan.Stages[s.Base].Config
	} else {
		s.Image = name
		if s.Config, err = p.options.Image(name); err != nil {
			err = sbxerr.Wrap(sbxerr.Of(err), op, fmt.Errorf("line %d: %w", i.line, err)) // the lines below are read all the same
		}
	}
	c := &s.Config
	c.Env, c.Labels = slices.Clone(c.Env), maps.Clone(c.Labels)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	p.plan.Stages, p.args, p.cmdSet = append(p.plan.Stages, s), map[string]string{}, false
	return err
}

// find returns the index of an earlier stage, -1 for none.
func (p *planner) find(name string) int {
	return slices.IndexFunc(p.plan.Stages, func(s Stage) bool { return s.Name != "" && s.Name == strings.ToLower(name) })
}

func (p *planner) arg(i instruction) error {
	for _, word := range i.words {
		name, value, has := strings.Cut(word, "=")
		if !isName(name) {
			return lineError(i.line, "ARG %q is no name", sbxerr.Clip(name))
		}
		var err error
		if value, err = p.expand(i, value); err != nil {
			return err
		}
		given, isGiven := p.options.Args[name]
		p.used[name] = p.used[name] || isGiven
		switch {
		case isGiven:
			value, has = given, true
		case !has && len(p.plan.Stages) > 0:
			value, has = p.global[name], true
		}
		if len(p.plan.Stages) == 0 {
			p.global[name] = value
		} else if has {
			p.args[name] = value
		}
	}
	return nil
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// pairs sets variables or labels. The parser gives each as name, value and separator.
func (p *planner) pairs(i instruction) error {
	var env []string
	for n := 0; n+1 < len(i.words); n += 3 {
		name, err := p.expand(i, i.words[n])
		if err != nil {
			return err
		}
		value, err := p.expand(i, i.words[n+1])
		if err != nil {
			return err
		}
		if name == "" || strings.Contains(name, "=") {
			return lineError(i.line, "%s %q is no name", strings.ToUpper(i.name), sbxerr.Clip(name))
		}
		if i.name == "label" {
			p.stage().Config.Labels[name] = value
			continue
		}
		env = append(env, name+"="+value)
	}
	for _, kv := range env { // of one line, none sees another
		p.stage().Config.Env = setEnv(p.stage().Config.Env, kv)
	}
	return nil
}

func setEnv(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	env = slices.DeleteFunc(slices.Clone(env), func(have string) bool { return strings.HasPrefix(have, name+"=") })
	return append(env, kv)
}

func (p *planner) run(i instruction) error {
	c := p.stage().Config
	r := Run{Dir: c.WorkingDir, User: c.User, Env: slices.Clone(c.Env)}
	for _, name := range slices.Sorted(maps.Keys(p.args)) {
		if !slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			r.Env = append(r.Env, name+"="+p.args[name])
		}
	}
	if i.json {
		r.Args = i.words
	} else if len(i.words) > 0 {
		r.Shell = i.words[0]
	}
	if len(r.Args) == 0 && r.Shell == "" {
		return lineError(i.line, "RUN has no command")
	}
	p.step(i, Step{Run: &r})
	return nil
}

func (p *planner) step(i instruction, s Step) {
	s.Line, s.Text = i.line, i.text
	p.stage().Steps = append(p.stage().Steps, s)
}

func (p *planner) copy(i instruction) error {
	c := Copy{Stage: -1, Mode: -1}
	var words []string
	for _, w := range i.words {
		expanded, err := p.expand(i, w)
		if err != nil {
			return err
		}
		words = append(words, expanded)
	}
	c.Sources = words[:len(words)-1]
	c.Dest = p.absolute(words[len(words)-1])
	if from, ok := i.flags["from"]; ok {
		if c.Stage = p.find(from); c.Stage < 0 {
			n, err := strconv.Atoi(from)
			switch {
			case err == nil && n >= 0 && n < len(p.plan.Stages)-1:
				c.Stage = n
			case err == nil:
				return lineError(i.line, "there is no earlier stage %s", sbxerr.Clip(from))
			default:
				c.Image = from
			}
		}
		if c.Stage == len(p.plan.Stages)-1 {
			return lineError(i.line, "COPY --from=%s is the stage itself", sbxerr.Clip(from))
		}
	}
	if err := p.expandInto(&c.Owner, i, i.flags["chown"]); err != nil {
		return err
	}
	if mode, ok := i.flags["chmod"]; ok {
		n, err := strconv.ParseInt(mode, 8, 32)
		if err != nil || n < 0 || n > 0o777 {
			return lineError(i.line, "--chmod=%s: give octal digits, such as 755", sbxerr.Clip(mode))
		}
		c.Mode = n
	}
	p.step(i, Step{Copy: &c})
	return nil
}

// absolute resolves a path against the working directory. A slash at the end stays.
func (p *planner) absolute(name string) string {
	isDir := strings.HasSuffix(name, "/") || name == "." || strings.HasSuffix(name, "/.")
	if !path.IsAbs(name) {
		name = path.Join("/", p.stage().Config.WorkingDir, name)
	}
	if name = path.Clean(name); isDir && name != "/" {
		name += "/"
	}
	return name
}

func (p *planner) workdir(i instruction) error {
	dir, err := p.expand(i, i.words[0])
	if err != nil {
		return err
	}
	if dir == "" {
		return lineError(i.line, "WORKDIR is empty")
	}
	dir = path.Clean(p.absolute(dir))
	p.stage().Config.WorkingDir = dir
	p.step(i, Step{Dir: dir})
	return nil
}

func (p *planner) command(i instruction) {
	words := slices.Clone(i.words)
	if !i.json && len(words) > 0 {
		words = []string{"/bin/sh", "-c", words[0]}
	}
	c := &p.stage().Config
	if i.name == "cmd" {
		c.Cmd, p.cmdSet = words, true
		return
	}
	c.Entrypoint = words
	if !p.cmdSet { // that of the base is for another program
		c.Cmd = nil
	}
}

// target drops the stages that the wanted one does not need. Indexes stay.
func (p *planner) target() (*Plan, error) {
	last := len(p.plan.Stages) - 1
	if t := p.options.Target; t != "" {
		if last = p.find(t); last < 0 {
			n, err := strconv.Atoi(t)
			if err != nil || n < 0 || n >= len(p.plan.Stages) {
				return nil, sbxerr.New(sbxerr.Dockerfile, op, "there is no stage %q", sbxerr.Clip(t))
			}
			last = n
		}
	}
	p.plan.Stages = p.plan.Stages[:last+1]
	needed := map[int]bool{last: true}
	for n := last; n >= 0; n-- {
		s := &p.plan.Stages[n]
		if !needed[n] {
			s.Steps = nil
			continue
		}
		s.Needed = true
		if s.Image == "" {
			needed[s.Base] = true
		}
		for _, step := range s.Steps {
			if step.Copy != nil {
				needed[step.Copy.Stage] = true
			}
		}
	}
	return &p.plan, nil
}
