package imageservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/registry"
)

// Names in the sandbox that fetches what ADD names: the program, the authorities that it
// trusts, and the folder below the root for the files.
const (
	fetchProgram     = "/run/fetch/caisson-gateway"
	fetchAuthorities = "/run/fetch/authorities.pem"
	fetchedFolder    = "fetched"
)

// maxFetchError bounds what is shown of the words of the program, and of a server's.
const maxFetchError = 1000

// checkDownloads refuses what ADD could not fetch by the rules of the build, before anything
// runs.
func (b *build) checkDownloads(ctx context.Context) error {
	var errs []error
	for _, stage := range b.plan.Stages {
		for _, step := range stage.Steps {
			if step.Copy == nil {
				continue
			}
			for _, d := range step.Copy.Downloads {
				if err := b.checkDownload(ctx, d.URL); err != nil {
					errs = append(errs, sbxerr.Wrap(plan.CodeOf(err), "images.build", stepOf(step, err)))
				}
			}
		}
	}
	return plan.JoinReasons(errs...)
}

func (b *build) checkDownload(ctx context.Context, url string) error {
	s := b.request.Sandbox
	s = StepRequest(s)
	mode, spec, err := b.service.fleet.StepPolicy(ctx, s)
	if err != nil || mode == netns.ModeBridge || mode == plan.HostNetwork { // which have no rules by name
		return err
	}
	p, err := policy.Compile(spec)
	if err != nil {
		return err
	}
	target, err := policy.ParseTarget(url)
	if err != nil {
		return err
	}
	d := p.Check(target)
	if d.Allowed {
		return nil
	}
	refusal := fmt.Errorf("ADD of %s: %s", sbxerr.Clip(url), d.Reason)
	if mode == netns.ModeNone {
		refusal = fmt.Errorf("ADD of %s: the build has no network", sbxerr.Clip(url))
	}
	remedy := d.Remedy
	if d.Needs != "" {
		remedy = "allow it: caisson image build " + allowFlag(s, d.Needs)
	}
	return sbxerr.WithRemedy(d.Code, "images.build", refusal, remedy)
}

// downloadStep fetches files and copies them. What a checksum names is fetched once. Other
// files are fetched each time, and later steps are done again if they have changed.
func (t *buildStage) downloadStep(ctx context.Context, s buildplan.Step, into *os.Root) error {
	if sum := s.Copy.Checksum; sum != "" {
		return t.cached(ctx, s, sum, func() error { return t.download(ctx, s, into) })
	}
	t.progress(s.Line, s.Text, false)
	return t.download(ctx, s, into)
}

func (t *buildStage) download(ctx context.Context, s buildplan.Step, into *os.Root) error {
	c, err := t.copyOf(ctx, s.Copy)
	if err != nil {
		return err
	}
	c.Into = into
	request, err := t.fetchRequest(ctx, s.Copy.Downloads)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	first := outputFunc(func(p []byte) { said.Write(p[:min(len(p), maxFetchError-said.Len())]) })
	return t.inSandbox(ctx, request, nil, first, func(r StepResult, w written) error {
		if r.ExitCode != 0 || r.OOMKilled {
			text := "the download failed"
			if why := strings.TrimSpace(said.String()); why != "" {
				text += ": " + why
			}
			return stepFailed(text, "", r, w)
		}
		for n, d := range s.Copy.Downloads {
			file := layertar.File{At: path.Join(fetchedFolder, strconv.Itoa(n)), Name: d.Name}
			if err := w.root.Lchown(file.At, 0, 0); err != nil { // it had the ids of a sandbox
				return sbxerr.Wrap(sbxerr.StateDir, "images.build", err)
			}
			c.Files = append(c.Files, file)
		}
		c.From = w.root
		if err := checkSum(w.root, c.Files[0].At, s.Copy.Checksum); err != nil {
			return err
		}
		return t.addDownloaded(ctx, s, c)
	})
}

func (t *buildStage) addDownloaded(ctx context.Context, s buildplan.Step, c layertar.Copy) error {
	layer, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	content := s.Copy.Checksum
	if content == "" {
		if content, err = layer.Digest(ctx); err != nil {
			return err
		}
		if found, err := t.reuse(ctx, s, content); err != nil || found {
			return err
		}
	}
	return t.add(ctx, t.key(s, content), layer.Write)
}

// fetchRequest asks for a sandbox of the embedded image, in the network of the build, in
// which caisson-gateway fetches.
func (t *buildStage) fetchRequest(ctx context.Context, list []buildplan.Download) (plan.Request, error) {
	img, err := t.service.Find(ctx, base.Name)
	if err != nil {
		return plan.Request{}, err
	}
	program, err := os.ReadFile(t.service.options.Gateway)
	if err != nil {
		return plan.Request{}, sbxerr.Wrap(sbxerr.Binary, "images.build", err)
	}
	c := t.request.Sandbox
	c.Build, c.Image, c.User, c.Profile = true, img.Key(), rootUser, StepRequest(c).Profile
	c.Env = []string{"SSL_CERT_FILE=" + fetchAuthorities, "SSL_CERT_DIR=/nowhere"}
	for target, file := range map[string]mount.MemoryFile{
		fetchProgram: {Data: program, Mode: 0o555, Program: true}, fetchAuthorities: {Data: registry.Authorities(), Mode: 0o444},
	} {
		c.Mounts = append(c.Mounts, plan.MountRequest{Type: plan.FileType, Source: "fetch", Target: target, ReadOnly: true, File: &file})
	}
	args := []string{fetchProgram, "fetch", "/" + fetchedFolder}
	for _, d := range list {
		args = append(args, d.URL)
	}
	return plan.Request{Create: c, Exec: plan.ExecRequest{Args: args, Cwd: "/", Timeout: t.request.Timeout}}, nil
}

// checkSum compares a file with the digest that it is to have. Empty is none.
func checkSum(root *os.Root, name string, want digest.Digest) error {
	if want == "" {
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "images.build", err)
	}
	got, err := digest.SHA256.FromReader(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "images.build", err)
	}
	if got != want {
		return sbxerr.WithRemedy(sbxerr.BuildFailed, "images.build", fmt.Errorf("the download has the digest %s, and not %s", got, want),
			"if it is the file that you mean, write --checksum="+got.String())
	}
	return nil
}
