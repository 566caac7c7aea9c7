package images

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// buildFlags are the flags of image build.
type buildFlags struct {
	file, target, profile, network, timeout string
	memory, cpus, pids, files, tmpfs        string
	args, secrets, allow, deny              []string
	noCache                                 bool
	pull                                    specflags.PullFlag
}

func imageBuildCommand(a *cli.App) *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:   "build NAME [-f FILE] [CONTEXT]",
		Short: "Build an image from a Dockerfile",
		Long: "Build an image from a Dockerfile. This program reads the files of the directory CONTEXT\n" +
			"(default: the current one), except those that FILE.dockerignore names, else .dockerignore\n" +
			"there, and sends them. Each RUN, and\n" +
			"each ADD of a URL, happens in a sandbox with its own limits, as root of that sandbox alone, and\n" +
			"without a network unless you allow one. Files that it writes count as memory, up to --tmpfs.\n\n" +
			"Instructions are those of Docker. EXPOSE, VOLUME, HEALTHCHECK, STOPSIGNAL and MAINTAINER have\n" +
			"no effect. What cannot be done is refused by its line before anything runs.",
		Example: "  caisson image build tools .\n  caisson image build -m 2G --allow pkgs.example tools -f tools.Dockerfile",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 2 {
				dir = args[1]
			}
			req, err := f.request(cmd.Flags(), args[0])
			if err != nil {
				return err
			}
			from := recipe{cmp.Or(f.file, filepath.Join(dir, "Dockerfile")), dir}
			if req.Dockerfile, err = readDockerfile(a, from.file); err != nil {
				return err
			}
			return build(a, cmd.Context(), req, f.pull, from)
		},
	}
	f.register(cmd)
	a.OutputFlags(cmd)
	return cmd
}

func (f *buildFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", "", "`FILE` to build from; - is standard input (default: CONTEXT/Dockerfile)")
	flags.StringArrayVar(&f.args, "build-arg", nil, "set the value of an ARG, `K=V`")
	flags.StringArrayVar(&f.secrets, "secret", nil, "`SECRET` of RUN --mount=type=secret: id=ID[,src=FILE|,env=NAME]")
	flags.StringVar(&f.target, "target", "", "build only to `STAGE`, a name or number (default: the last)")
	flags.BoolVar(&f.noCache, "no-cache", false, "run all steps again")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE` of each RUN (default: the profile's, else 512M)")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs of each RUN (default: the profile's, else 1)")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads of each RUN (default: the profile's, else 256)")
	flags.StringVar(&f.files, "open-files", "", "limit of `N` open files per process (default: the profile's, else 1024)")
	flags.StringVar(&f.tmpfs, "tmpfs", "", "limit of `SIZE` for the files that a RUN writes (default: the profile's, else half the memory)")
	flags.StringVar(&f.timeout, "timeout", "", "stop a RUN after `DURATION`, such as 10m")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE` of each RUN (default compat)")
	specflags.RegisterNetwork(cmd, &f.network, &f.allow, &f.deny)
	f.pull.Register(cmd)
}

func (f *buildFlags) request(flags *pflag.FlagSet, name string) (*caissonv1.BuildImageRequest, error) {
	p := cli.Parser{Flags: flags}
	p.NotEmpty("file", "target", "profile", "network")
	req := &caissonv1.BuildImageRequest{
		Name: name, Target: f.target, NoCache: f.noCache, Args: map[string]string{}, Secrets: map[string][]byte{}, Timeout: p.Duration("timeout", f.timeout),
		Sandbox: &caissonv1.SandboxSpec{
			Profile: f.profile, Network: f.network, Allow: f.allow, Deny: f.deny,
			Limits: &caissonv1.Limits{
				MemoryBytes: p.Number("memory", f.memory, units.ParseSize),
				MilliCpu:    p.Number("cpus", f.cpus, units.ParseCPU),
				Pids:        p.Number("pids", f.pids, units.ParseCount),
				OpenFiles:   p.Number("open-files", f.files, units.ParseCount),
				TmpfsBytes:  p.Number("tmpfs", f.tmpfs, units.ParseSize),
			},
		},
	}
	for _, kv := range f.args {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			p.Refuse(cli.Usage("--build-arg %q is not of the form K=V", kv))
			continue
		}
		req.Args[k] = v
	}
	for _, text := range f.secrets {
		id, data, err := buildSecret(text)
		if err != nil {
			p.Refuse(err)
			continue
		}
		req.Secrets[id] = data
	}
	return req, p.End(req)
}

// maxDockerfile is more than the daemon takes.
const maxDockerfile = 2 << 20

func readDockerfile(a *cli.App, file string) ([]byte, error) {
	if file == "-" {
		return readAtMost(a.Stdin, "standard input")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, dockerfileError(err)
	}
	defer f.Close() // it was only read
	return readAtMost(f, file)
}

func readAtMost(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDockerfile+1))
	if err == nil && len(data) > maxDockerfile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxDockerfile)
	}
	if err != nil {
		return nil, dockerfileError(err)
	}
	return data, nil
}

func dockerfileError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.build", fmt.Errorf("read the Dockerfile: %w", err))
}

// build pulls the images that the file names, sends the context, and has the daemon build.
func build(a *cli.App, ctx context.Context, req *caissonv1.BuildImageRequest, pull specflags.PullFlag, from recipe) error {
	return a.With(ctx, func(client *api.Client) (err error) {
		needs, err := buildNeeds(a, ctx, client, pull, req)
		if err != nil {
			return err
		}
		if needs.Context {
			var done func()
			done, err = sendContext(a, ctx, client, req, from)
			if err != nil {
				return err
			}
			defer func() {
				if err != nil { // the build may not have begun
					done()
				}
			}()
		}
		show := buildDisplay{app: a}
		var r *caissonv1.BuildProgress
		r, err = client.BuildImage(ctx, req, show.event)
		show.flush()
		if err != nil {
			return err
		}
		if a.Output == cli.FormatJSON {
			return a.PrintJSONLine(buildLine{Type: "image", Image: a.Message(r.Image), Replaced: r.Replaced})
		}
		if r.Replaced != "" {
			a.Progress("replaced the image " + r.Image.Name + ", " + r.Replaced)
		}
		return a.PrintLine("%s %s", cli.Printable(r.Image.Name), cli.Printable(r.Image.Digest))
	})
}

// buildNeeds asks the daemon what the build reads, and pulls the images among it. One that was
// pulled may ask for more (ONBUILD).
func buildNeeds(a *cli.App, ctx context.Context, client *api.Client, when specflags.PullFlag, req *caissonv1.BuildImageRequest) (*caissonv1.BuildNeeds, error) {
	seen := map[string]bool{}
	for {
		needs, err := client.BuildNeeds(ctx, req)
		if err != nil {
			return nil, err
		}
		again := false
		for _, name := range needs.Images {
			if seen[name] || !hasRegistry(name) {
				continue
			}
			seen[name], again = true, true
			if when == specflags.PullAlways {
				_, err = pull(a, ctx, client, name)
			} else {
				err = PullMissing(a, ctx, client, when, name)
			}
			if err != nil {
				return nil, err
			}
		}
		if !again {
			return needs, nil
		}
	}
}

// buildDisplay shows a build as it goes on.
type buildDisplay struct {
	app  *cli.App
	rest [2]bytes.Buffer // of a line of stdout and of stderr
}

// buildLine is one event as JSON. Type says which one it is.
type buildLine struct {
	Type        string `json:"type"` // "step", "stdout", "stderr", "image"
	Step        int32  `json:"step,omitempty"`
	Steps       int32  `json:"steps,omitempty"`
	Line        int32  `json:"line,omitempty"` // of the Dockerfile
	Instruction string `json:"instruction,omitempty"`
	Cached      bool   `json:"cached,omitempty"`
	Text        string `json:"text,omitempty"` // of the output
	Image       any    `json:"image,omitempty"`
	Replaced    string `json:"replaced,omitempty"`
}

func (d *buildDisplay) event(e *caissonv1.BuildProgress) {
	if e.Instruction == "" {
		d.output(0, "stdout", e.Stdout)
		d.output(1, "stderr", e.Stderr)
		return
	}
	d.flush()
	if d.app.Output == cli.FormatJSON {
		_ = d.app.PrintJSONLine(buildLine{Type: "step", Step: e.Step, Steps: e.Steps, Line: e.Line, Instruction: e.Instruction, Cached: e.Cached}) // the last line fails too
		return
	}
	cached := ""
	if e.Cached {
		cached = " (cached)"
	}
	d.app.Progress(fmt.Sprintf("[%d/%d] %s%s", e.Step, e.Steps, e.Instruction, cached))
}

// output shows whole lines of a stream.
func (d *buildDisplay) output(n int, stream string, data []byte) {
	d.rest[n].Write(data)
	for {
		line, rest, found := bytes.Cut(d.rest[n].Bytes(), []byte("\n"))
		if !found && d.rest[n].Len() < 64<<10 {
			return
		}
		d.line(stream, string(line))
		d.rest[n] = *bytes.NewBuffer(bytes.Clone(rest))
	}
}

func (d *buildDisplay) flush() {
	for n, stream := range []string{"stdout", "stderr"} {
		if d.rest[n].Len() > 0 {
			d.line(stream, d.rest[n].String())
			d.rest[n].Reset()
		}
	}
}

func (d *buildDisplay) line(stream, line string) {
	if d.app.Output == cli.FormatJSON {
		_ = d.app.PrintJSONLine(buildLine{Type: stream, Text: line}) // the last line fails too
		return
	}
	d.app.Progress(line)
}

func contextError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.build", fmt.Errorf("read the context: %w", err))
}
