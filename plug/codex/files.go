package codex

import (
	"bytes"
	"context"
	"errors"
	"path"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	maxFile  = 32 << 20 // of a file that is read, in bytes
	maxLinks = 40       // in one path, as the kernel's
)

type pathParams struct {
	Path      string
	Recursive *bool
	Force     *bool
	Sandbox   *sandboxContext
}

func orTrue(b *bool) bool { return b == nil || *b }

// at is the sandbox and the path of a call for a file or a tree. The policy of the call has
// to give the access to all of it; follow says whether it works on the target of a link.
// A command may change the path meanwhile: it has all the access that the call could get so.
func (s *session) at(ctx context.Context, uri string, c *sandboxContext, need access, follow bool) (*box, string, error) {
	name, err := pathOf(uri)
	if err != nil {
		return nil, "", err
	}
	p, err := c.policy()
	if err != nil {
		return nil, "", err
	}
	b, err := s.boxes.open(ctx, variant{})
	if err != nil || !p.restricted {
		return b, name, err
	}
	if follow {
		name, err = s.real(ctx, b, name, true)
	} else {
		base := path.Base(name)
		name, err = s.real(ctx, b, path.Dir(name), true)
		name = path.Join(name, base)
	}
	if err == nil && (p.globs || p.least(name) > need) {
		err = refuse(codeRequest, "the sandbox of Codex does not allow this for %s", name)
	}
	return b, name, err
}

func (s *session) stat(ctx context.Context, b *box, name string, follow bool) (*caissonv1.FileInfo, error) {
	return s.boxes.client.Stat(ctx, &caissonv1.StatRequest{Ref: b.ref, Path: name, Follow: follow})
}

// real resolves all links of a path. With missing the end of the path need not exist.
func (s *session) real(ctx context.Context, b *box, name string, missing bool) (string, error) {
	done, links := "/", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		info, err := s.stat(ctx, b, next, false)
		if err != nil && !(missing && errors.Is(err, sbxerr.FileAbsent)) {
			return "", err
		}
		if info.GetType() != "symlink" {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", refuse(codeFailed, "%s: too many links", name)
		}
		if path.IsAbs(info.GetLink()) {
			done = "/"
		}
		rest = append(strings.Split(info.GetLink(), "/"), rest...)
	}
	return done, nil
}

type metadata struct {
	IsDirectory  bool  `json:"isDirectory"`
	IsFile       bool  `json:"isFile"`
	IsSymlink    bool  `json:"isSymlink"`
	Size         int64 `json:"size"`
	CreatedAtMs  int64 `json:"createdAtMs"` // 0: it is not known
	ModifiedAtMs int64 `json:"modifiedAtMs"`
}

func (s *session) getMetadata(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessRead, false)
	if err != nil {
		return nil, err
	}
	own, err := s.stat(ctx, b, name, false)
	info := own
	if own.GetType() == "symlink" {
		if b, name, err = s.at(ctx, p.Path, p.Sandbox, accessRead, true); err != nil {
			return nil, err
		}
		info, err = s.stat(ctx, b, name, true)
	}
	return metadata{
		IsDirectory: info.GetType() == "directory", IsFile: info.GetType() == "file", IsSymlink: own.GetType() == "symlink",
		Size: info.GetSizeBytes(), ModifiedAtMs: info.GetModifiedAt().AsTime().UnixMilli(),
	}, err
}

func (s *session) readFile(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessRead, true)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	_, err = s.boxes.client.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: b.ref, Path: name, Length: maxFile + 1}, &content)
	if content.Len() > maxFile {
		return nil, refuse(codeRequest, "the file has more than %d bytes", maxFile)
	}
	if errors.Is(err, sbxerr.FileKind) {
		if info, _ := s.stat(ctx, b, name, true); info.GetType() == "directory" { // else err says why
			err = refuse(codeRequest, "%s is a directory", name)
		}
	}
	return map[string]any{"dataBase64": content.Bytes()}, err
}

type writeFileParams struct {
	Path       string
	DataBase64 []byte
	Sandbox    *sandboxContext
}

func (s *session) writeFile(ctx context.Context, p writeFileParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessWrite, true)
	if err == nil {
		_, err = s.boxes.client.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: b.ref, Path: name}, bytes.NewReader(p.DataBase64))
	}
	return struct{}{}, err
}

func (s *session) createDirectory(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessWrite, true)
	if err == nil {
		_, err = s.boxes.client.MakeDir(ctx, &caissonv1.MakeDirRequest{Ref: b.ref, Path: name, MakeParents: orTrue(p.Recursive)})
	}
	return struct{}{}, err
}

type dirEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
}

func (s *session) readDirectory(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessRead, true)
	if err != nil {
		return nil, err
	}
	list, err := s.list(ctx, b, name)
	entries := []dirEntry{}
	for _, f := range list {
		entries = append(entries, dirEntry{f.name, f.kind == "directory", f.kind == "file"})
	}
	return map[string]any{"entries": entries}, err
}

// found is an entry of a directory; of a link the kind is that of its target.
type found struct {
	name, kind string
	link       bool
}

// list is what a directory has. Links that lead nowhere are left out.
func (s *session) list(ctx context.Context, b *box, dir string) (list []found, err error) {
	answer, err := s.boxes.client.ListDir(ctx, &caissonv1.ListDirRequest{Ref: b.ref, Path: dir, Depth: 1})
	if err != nil {
		return nil, err
	}
	if answer.GetTruncated() {
		return nil, refuse(codeFailed, "%s has too many entries", dir)
	}
	for _, f := range answer.GetFiles() {
		e := found{path.Base(f.GetPath()), f.GetType(), f.GetType() == "symlink"}
		if e.link {
			target, err := s.stat(ctx, b, path.Join(dir, e.name), true)
			if err != nil {
				continue
			}
			e.kind = target.GetType()
		}
		list = append(list, e)
	}
	return list, nil
}

func (s *session) canonicalize(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessRead, true)
	if err != nil {
		return nil, err
	}
	name, err = s.real(ctx, b, name, false)
	return map[string]any{"path": uriOf(name)}, err
}

// remove removes a link itself, not its target.
func (s *session) remove(ctx context.Context, p pathParams) (any, error) {
	b, name, err := s.at(ctx, p.Path, p.Sandbox, accessWrite, false)
	if err == nil {
		_, err = s.boxes.client.RemoveFile(ctx, &caissonv1.RemoveFileRequest{Ref: b.ref, Path: name, Recursive: orTrue(p.Recursive)})
	}
	if orTrue(p.Force) && errors.Is(err, sbxerr.FileAbsent) {
		err = nil
	}
	return struct{}{}, err
}

type copyParams struct {
	SourcePath, DestinationPath string
	Recursive                   bool
	Sandbox                     *sandboxContext
}

func (s *session) copyFile(ctx context.Context, p copyParams) (any, error) {
	b, from, err := s.at(ctx, p.SourcePath, p.Sandbox, accessRead, true)
	if err != nil {
		return nil, err
	}
	_, to, err := s.at(ctx, p.DestinationPath, p.Sandbox, accessWrite, true)
	if err != nil {
		return nil, err
	}
	info, err := s.stat(ctx, b, from, true)
	switch {
	case err != nil:
		return nil, err
	case info.GetType() == "directory" && !p.Recursive:
		return nil, refuse(codeRequest, "%s is a directory, and the copy is not recursive", from)
	}
	answer, err := s.boxes.client.Output(ctx, b.ref, &caissonv1.ExecSpec{Args: []string{"cp", "-R", "-T", from, to}}, nil)
	if err == nil && answer.GetResult().GetExitCode() != 0 {
		err = refuse(codeFailed, "%s", bytes.TrimSpace(answer.GetStderr()))
	}
	return struct{}{}, err
}
