package dockerfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/containerd/platforms"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// globals are the variables that a file has by itself. FROM sees them, and a stage after ARG.
func (o Options) globals(list []instruction) map[string]string {
	p := o.Platform
	stage := o.Target
	for _, i := range list {
		if from, ok := i.command.(*instructions.Stage); ok && o.Target == "" {
			stage = from.Name // of the last one
		}
	}
	if stage == "" {
		stage = "default"
	}
	all := map[string]string{"TARGETSTAGE": stage}
	for _, side := range []string{"BUILD", "TARGET"} {
		all[side+"PLATFORM"] = platforms.Format(p)
		all[side+"OS"], all[side+"OSVERSION"] = p.OS, p.OSVersion
		all[side+"ARCH"], all[side+"VARIANT"] = p.Architecture, p.Variant
	}
	for name := range all {
		if given, ok := o.Args[name]; ok {
			all[name] = given
		}
	}
	return all
}

// proxies are build arguments that every RUN has without an ARG, in both spellings.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// isPredefined reports whether a build argument needs no ARG.
func isPredefined(name string) bool {
	return slices.Contains(proxies, strings.ToUpper(name)) || strings.HasPrefix(name, "TARGET") || strings.HasPrefix(name, "BUILD") || name == "SOURCE_DATE_EPOCH"
}

// checkPlatform takes this host's platform alone.
func (p *planner) checkPlatform(i instruction, word string) error {
	name, err := p.expand(i.line, word)
	if err != nil {
		return err
	}
	asked, err := platforms.Parse(name)
	if err != nil {
		return lineError(i.line, "--platform=%s: %s", sbxerr.Clip(name), sbxerr.Clip(err.Error()))
	}
	if own := p.options.Platform; asked.OS != own.OS || asked.Architecture != own.Architecture {
		return lineError(i.line, "--platform=%s: images are built for %s alone; leave the flag out", sbxerr.Clip(name), platforms.Format(own))
	}
	return nil
}

// find returns a variable of the stage. ENV hides ARG.
func (p *planner) find(name string) (string, bool) {
	for _, kv := range p.stage().Config.Env {
		if have, value, _ := strings.Cut(kv, "="); have == name {
			return value, true
		}
	}
	value, ok := p.arguments()[name]
	return value, ok
}

func (p *planner) arg(i instruction, c *instructions.ArgCommand) error {
	for _, a := range c.Args {
		if !isName(a.Key) {
			return lineError(i.line, "ARG %q is no name", sbxerr.Clip(a.Key))
		}
		given, has := p.options.Args[a.Key]
		value := given
		switch {
		case has:
			p.used[a.Key] = true
		case a.Value != nil:
			var err error
			if value, err = p.expand(i.line, *a.Value); err != nil {
				return err
			}
			has = true
		case len(p.plan.Stages) > 0:
			value, has = p.global[a.Key]
		}
		if !has {
			continue
		}
		args := p.global
		if len(p.plan.Stages) > 0 {
			args = p.arguments()
		}
		args[a.Key] = value
		if err := checkSize(i, "ARG", slices.Collect(maps.Values(args))); err != nil {
			return err
		}
	}
	return nil
}

// checkSize bounds variables, or labels.
func checkSize(i instruction, what string, values []string) error {
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if len(values) > maxNames || size > maxEnv {
		return lineError(i.line, "the %s of a stage are more than %d, or have more than %d bytes", what, maxNames, maxEnv)
	}
	return nil
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r > 127 || !isNameByte(byte(r)) })
}

func (p *planner) env(i instruction, c *instructions.EnvCommand) error {
	config := &p.stage().Config
	for _, kv := range c.Env { // of one line, none sees another
		if kv.Key == "" || strings.Contains(kv.Key, "=") {
			return lineError(i.line, "ENV %q is no name", sbxerr.Clip(kv.Key))
		}
		config.Env = setEnv(config.Env, kv.Key, kv.Value)
		if err := checkSize(i, "ENV", config.Env); err != nil {
			return err
		}
	}
	return nil
}

// setEnv returns env with another value of a name, at its place.
func setEnv(env []string, name, value string) []string {
	env = slices.Clone(env) // steps keep what they have
	for n, kv := range env {
		if have, _, _ := strings.Cut(kv, "="); have == name {
			env[n] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

func (p *planner) label(i instruction, c *instructions.LabelCommand) error {
	labels := p.stage().Config.Labels
	for _, kv := range c.Labels {
		if kv.Key == "" || strings.Contains(kv.Key, "=") {
			return lineError(i.line, "LABEL %q is no name", sbxerr.Clip(kv.Key))
		}
		labels[kv.Key] = kv.Value
	}
	list := slices.AppendSeq(slices.Collect(maps.Keys(labels)), maps.Values(labels))
	return checkSize(i, "LABEL", list)
}

// runEnv are the variables of a command: those of the image, and the arguments.
func (p *planner) runEnv() []string {
	args := p.arguments()
	env := slices.Clip(p.stage().Config.Env)
	have := map[string]bool{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		have[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !have[name] {
			env = append(env, name+"="+args[name])
		}
	}
	return env
}

// proxyEnv are the proxies that the build was given. They are no part of the image, nor of
// the key of a step.
func (o Options) proxyEnv() (env []string) {
	for _, name := range slices.Sorted(maps.Keys(o.Args)) {
		if upper := strings.ToUpper(name); slices.Contains(proxies, upper) {
			env = append(env, upper+"="+o.Args[name], strings.ToLower(name)+"="+o.Args[name])
		}
	}
	return env
}
