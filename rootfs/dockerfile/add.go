package dockerfile

import (
	_ "crypto/sha256" // without it the package digest takes no such checksum
	"net/url"
	"path"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// addFiles plans ADD. Downloads come in a step of their own, after the files of the context.
func (p *planner) addFiles(i instruction, c *instructions.AddCommand) error {
	if len(c.ExcludePatterns) > 0 || c.KeepGitDir != nil {
		return lineError(i.line, "ADD --exclude and --keep-git-dir are not supported: use COPY, or git in RUN with an allowed host")
	}
	files, remote := c.SourcesAndDest, Copy{Stage: -1, Owner: c.Chown, Mode: c.Chmod, Unpack: c.Unpack != nil && *c.Unpack}
	files.SourcePaths = nil
	for _, source := range c.SourcePaths {
		if !strings.Contains(source, "://") && !strings.HasPrefix(source, "git@") {
			files.SourcePaths = append(files.SourcePaths, source)
			continue
		}
		d, err := download(i, source, c.DestPath)
		if err != nil {
			return err
		}
		remote.Downloads = append(remote.Downloads, d)
	}
	local := len(files.SourcePaths) + len(files.SourceContents)
	if local > 0 && len(remote.Downloads) > 0 && !strings.HasSuffix(c.DestPath, "/") {
		return lineError(i.line, "%d sources need a directory: end %q with a slash", local+len(remote.Downloads), sbxerr.Clip(c.DestPath))
	}
	var err error
	if remote.Checksum, err = checksum(i, c.Checksum, local, len(remote.Downloads)); err != nil {
		return err
	}
	if local > 0 {
		if err := p.files(i, Copy{Stage: -1, Owner: c.Chown, Mode: c.Chmod, Unpack: c.Unpack == nil || *c.Unpack}, files); err != nil {
			return err
		}
	}
	if len(remote.Downloads) == 0 {
		return nil
	}
	return p.files(i, remote, instructions.SourcesAndDest{DestPath: c.DestPath})
}

// download reads a source with a scheme.
func download(i instruction, source, dest string) (Download, error) {
	u, err := url.Parse(source)
	switch {
	case isGit(source, u):
		return Download{}, lineError(i.line, "ADD of %s: git repositories are not supported: clone it in RUN with an allowed host, or put it into the context", sbxerr.Clip(source))
	case err != nil || u.Host == "":
		return Download{}, lineError(i.line, "ADD of %s: it is no URL with a host", sbxerr.Clip(source))
	case u.Scheme != "http" && u.Scheme != "https":
		return Download{}, lineError(i.line, "ADD of %s: only http and https are supported", sbxerr.Clip(source))
	}
	name := path.Base(u.Path)
	if name == "." || name == "/" || name == ".." || strings.ContainsRune(name, 0) {
		if strings.HasSuffix(dest, "/") {
			return Download{}, lineError(i.line, "ADD of %s: its path names no file: give the destination the file's name, without a slash at the end", sbxerr.Clip(source))
		}
		name = "__unnamed__" // as BuildKit calls it
	}
	return Download{URL: source, Name: name}, nil
}

// isGit reports whether BuildKit would take source for a git repository. u is nil where it is
// no URL.
func isGit(source string, u *url.URL) bool {
	return strings.HasPrefix(source, "git@") || u != nil && (u.Scheme == "git" || u.Scheme == "ssh" || strings.HasSuffix(u.Path, ".git"))
}

// checksum reads --checksum.
func checksum(i instruction, text string, local, downloads int) (digest.Digest, error) {
	if text == "" {
		return "", nil
	}
	if downloads != 1 || local > 0 {
		return "", lineError(i.line, "--checksum is for one source, which is a URL")
	}
	d := digest.Digest(text)
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return "", lineError(i.line, "--checksum=%s: write sha256: and 64 hexadecimal digits", sbxerr.Clip(text))
	}
	return d, nil
}
