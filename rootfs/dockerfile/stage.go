package dockerfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// scratch is the name of the image without files.
const scratch = "scratch"

// defaultPath is PATH of images that set none (BuildKit's system.DefaultPathEnvUnix).
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (p *planner) from(i instruction, c *instructions.Stage) error {
	p.inFrom = true
	name, err := p.expand(i.line, c.BaseName)
	if err == nil && c.Platform != "" {
		err = p.checkPlatform(i, c.Platform)
	}
	p.inFrom = false
	switch {
	case err != nil:
		return err
	case name == "":
		return lineError(i.line, "FROM %s: the name of the image is empty", sbxerr.Clip(c.BaseName))
	case c.Name != "" && p.byName(c.Name) >= 0:
		return lineError(i.line, "there is another stage %q", sbxerr.Clip(c.Name))
	}
	s := Stage{Name: c.Name, Line: i.line, Text: i.text, Base: p.byName(name)}
	args := map[string]string{}
	var triggers []string
	switch {
	case s.Base >= 0:
		base := p.plan.Stages[s.Base]
		s.Config, args = base.Config, maps.Clone(p.args[s.Base])
	case name == scratch:
		s.Empty = true
	default:
		s.Image = name
		if s.Config, err = p.options.Image(name); err != nil {
			err = sbxerr.Wrap(sbxerr.Of(err), op, fmt.Errorf("line %d: %w", i.line, err)) // the lines below are read all the same
		}
	}
	config := &s.Config
	triggers, config.OnBuild = config.OnBuild, nil
	config.Env, config.Labels = slices.Clone(config.Env), maps.Clone(config.Labels)
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	if !slices.ContainsFunc(config.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }) {
		config.Env = append(config.Env, defaultPath)
	}
	p.plan.Stages, p.args, p.cmdSet = append(p.plan.Stages, s), append(p.args, args), false
	var reasons sbxerr.Reasons
	reasons.Add(err)
	reasons.Add(p.trigger(i, triggers))
	return reasons.Err()
}

// trigger does what ONBUILD of the image or stage asks for.
func (p *planner) trigger(from instruction, list []string) error {
	var reasons sbxerr.Reasons
	for _, text := range list {
		i, err := trigger(text, from.line)
		if err == nil {
			err = p.add(i)
		}
		reasons.Add(err)
		if p.tooMany() {
			break
		}
	}
	return reasons.Err()
}

// onBuild keeps an instruction for builds that begin with this image.
func (p *planner) onBuild(i instruction, text string) error {
	if _, err := trigger(text, i.line); err != nil {
		return err
	}
	c := &p.stage().Config
	c.OnBuild = append(slices.Clip(c.OnBuild), text)
	size := 0
	for _, text := range c.OnBuild {
		size += len(text)
	}
	if size > maxEnv {
		return lineError(i.line, "the ONBUILD of a stage have more than %d bytes", maxEnv)
	}
	return nil
}

// byName returns the index of an earlier stage, -1 for none.
func (p *planner) byName(name string) int {
	return slices.IndexFunc(p.plan.Stages, func(s Stage) bool { return s.Name != "" && s.Name == strings.ToLower(name) })
}

// source finds what --from means: an earlier stage, or an image.
func (p *planner) source(i instruction, from string) (stage int, image string, err error) {
	if strings.Contains(from, "$") {
		return 0, "", lineError(i.line, "--from=%s: variables are not replaced there; name a stage with FROM before", sbxerr.Clip(from))
	}
	current := len(p.plan.Stages) - 1
	if stage = p.byName(from); stage == current {
		return 0, "", lineError(i.line, "--from=%s is the stage itself", sbxerr.Clip(from))
	}
	if stage >= 0 {
		return stage, "", nil
	}
	n, err := strconv.Atoi(from)
	switch {
	case err != nil:
		return -1, from, nil
	case n < 0 || n >= current:
		return 0, "", lineError(i.line, "there is no earlier stage %s", sbxerr.Clip(from))
	}
	return n, "", nil
}

// target drops the stages that the wanted one does not need. Indexes stay.
func (p *planner) target() (*Plan, error) {
	last := len(p.plan.Stages) - 1
	if t := p.options.Target; t != "" {
		if last = p.byName(t); last < 0 {
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
		if s.Image == "" && !s.Empty {
			needed[s.Base] = true
		}
		for _, step := range s.Steps {
			if step.Copy != nil {
				needed[step.Copy.Stage] = true
			}
			if step.Run != nil {
				for _, m := range step.Run.Mounts {
					needed[m.Stage] = true
				}
			}
		}
	}
	return &p.plan, nil
}
