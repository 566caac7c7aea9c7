package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups/units"
)

// buildFlags are the flags of image build.
type buildFlags struct {
	file, target, profile, network, timeout string
	memory, cpus, pids, files, tmpfs        string
	args, allow, deny                       []string
	noCache                                 bool
	pull                                    pullFlag
}

func (a *app) imageBuildCommand() *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:   "build NAME [-f FILE] [CONTEXT]",
		Short: "Build an image from a Dockerfile",
		Long: "Build an image from a Dockerfile. This program reads the files of the directory CONTEXT\n" +
			"(default: the current one), except those that .dockerignore names, and sends them. Each RUN\n" +
			"happens in a sandbox with its own limits, as root of that sandbox alone, and without a\n" +
			"network unless you allow one. Files that it writes count as memory, up to --tmpfs.\n\n" +
			"Instructions: FROM, RUN, COPY, ADD (local files), ENV, WORKDIR, USER, ENTRYPOINT, CMD, ARG,\n" +
			"LABEL. Any other one is refused before anything runs.",
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
			if req.Dockerfile, err = a.readDockerfile(f.file, dir); err != nil {
				return err
			}
			return a.build(cmd.Context(), req, f.pull, dir)
		},
	}
	f.register(cmd)
	a.outputFlags(cmd)
	return cmd
}

func (f *buildFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", "", "`FILE` to build from; - is standard input (default: CONTEXT/Dockerfile)")
	flags.StringArrayVar(&f.args, "build-arg", nil, "set the value of an ARG, `K=V`")
	flags.StringVar(&f.target, "target", "", "build only to `STAGE`, a name or number (default: the last)")
	flags.BoolVar(&f.noCache, "no-cache", false, "run all steps again")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE` of each RUN (default: the profile's, else 512M)")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs of each RUN (default: the profile's, else 1)")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads of each RUN (default: the profile's, else 256)")
	flags.StringVar(&f.files, "open-files", "", "limit of `N` open files per process (default: the profile's, else 1024)")
	flags.StringVar(&f.tmpfs, "tmpfs", "", "limit of `SIZE` for the files that a RUN writes (default: the profile's, else half the memory)")
	flags.StringVar(&f.timeout, "timeout", "", "stop a RUN after `DURATION`, such as 10m")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE` of each RUN (default compat)")
	registerNetwork(cmd, &f.network, &f.allow, &f.deny)
	f.pull.register(cmd)
}

func (f *buildFlags) request(flags *pflag.FlagSet, name string) (*caissonv1.BuildImageRequest, error) {
	p := parser{flags: flags}
	p.notEmpty("file", "target", "profile", "network")
	req := &caissonv1.BuildImageRequest{
		Name: name, Target: f.target, NoCache: f.noCache, Args: map[string]string{}, Timeout: p.duration("timeout", f.timeout),
		Sandbox: &caissonv1.SandboxSpec{
			Profile: f.profile, Network: f.network, Allow: f.allow, Deny: f.deny,
			Limits: &caissonv1.Limits{
				MemoryBytes: p.number("memory", f.memory, units.ParseSize),
				MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
				Pids:        p.number("pids", f.pids, parseCount),
				OpenFiles:   p.number("open-files", f.files, parseCount),
				TmpfsBytes:  p.number("tmpfs", f.tmpfs, units.ParseSize),
			},
		},
	}
	for _, kv := range f.args {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			p.refuse(usage("--build-arg %q is not of the form K=V", kv))
			continue
		}
		req.Args[k] = v
	}
	return req, p.end(req)
}

// maxDockerfile is more than the daemon takes.
const maxDockerfile = 2 << 20

func (a *app) readDockerfile(file, dir string) ([]byte, error) {
	if file == "-" {
		return readAtMost(a.stdin, "standard input")
	}
	if file == "" {
		file = filepath.Join(dir, "Dockerfile")
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

// What the client has to know of a Dockerfile. The daemon reads all of it.
var (
	copyLine = regexp.MustCompile(`(?mi)^\s*(COPY|ADD)\s`)
	fromLine = regexp.MustCompile(`(?mi)^\s*FROM\s+([^\s$-][^\s$]*)(\s|$)`)
)

// build pulls the images that the file begins with, sends the context, and has the daemon
// build.
func (a *app) build(ctx context.Context, req *caissonv1.BuildImageRequest, pull pullFlag, dir string) error {
	return a.with(ctx, func(client *api.Client) (err error) {
		if err := a.pullBases(ctx, client, pull, req.Dockerfile); err != nil {
			return err
		}
		if copyLine.Match(req.Dockerfile) {
			var done func()
			done, err = a.sendContext(ctx, client, req, dir)
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
		if a.output == formatJSON {
			return a.printJSONLine(buildLine{Type: "image", Image: imageViewOf(r.Image), Replaced: r.Replaced})
		}
		if r.Replaced != "" {
			a.progress("replaced the image " + r.Image.Name + ", " + r.Replaced)
		}
		return a.printLine("%s %s", printable(r.Image.Name), printable(r.Image.Digest))
	})
}

func (a *app) pullBases(ctx context.Context, client *api.Client, when pullFlag, file []byte) error {
	var names []string
	for _, m := range fromLine.FindAllSubmatch(file, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if when == pullAlways && hasRegistry(name) {
			if _, err := a.pull(ctx, client, name); err != nil {
				return err
			}
			continue
		}
		if err := a.pullMissing(ctx, client, when, name); err != nil {
			return err
		}
	}
	return nil
}

// buildDisplay shows a build as it goes on.
type buildDisplay struct {
	app  *app
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
	if d.app.output == formatJSON {
		_ = d.app.printJSONLine(buildLine{Type: "step", Step: e.Step, Steps: e.Steps, Line: e.Line, Instruction: e.Instruction, Cached: e.Cached}) // the last line fails too
		return
	}
	cached := ""
	if e.Cached {
		cached = " (cached)"
	}
	d.app.progress(fmt.Sprintf("[%d/%d] %s%s", e.Step, e.Steps, e.Instruction, cached))
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
	if d.app.output == formatJSON {
		_ = d.app.printJSONLine(buildLine{Type: stream, Text: line}) // the last line fails too
		return
	}
	d.app.progress(line)
}

func contextError(err error) error {
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.build", fmt.Errorf("read the context: %w", err))
}
