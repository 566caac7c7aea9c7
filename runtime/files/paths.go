package files

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// checkPath refuses what is not an absolute path that the kernel could resolve.
func checkPath(p string) error {
	switch {
	case p == "":
		return pathError("the path is empty")
	case strings.ContainsRune(p, 0):
		return pathError("path %q holds a NUL", sbxerr.Clip(p))
	case p[0] != '/':
		return pathError("path %q is not absolute", sbxerr.Clip(p))
	case len(p) > wire.MaxPath:
		return pathError("path %q has %d bytes, %d is the most", sbxerr.Clip(p), len(p), wire.MaxPath)
	}
	for element := range strings.SplitSeq(p, "/") {
		if len(element) > wire.MaxName {
			return pathError("path %q has an element of %d bytes, %d is the most", sbxerr.Clip(p), len(element), wire.MaxName)
		}
	}
	return nil
}

// checkTarget is checkPath for an entry that is made, moved or removed: that has
// a name of its own. It returns the path without slashes at its end.
func checkTarget(p string) (string, error) {
	if err := checkPath(p); err != nil {
		return "", err
	}
	trimmed := strings.TrimRight(p, "/")
	switch path.Base(trimmed) {
	case ".", "..": // of "/", too
		return "", pathError("path %q names no entry of a directory", sbxerr.Clip(p))
	}
	return trimmed, nil
}

func pathError(format string, args ...any) error {
	return sbxerr.New(sbxerr.FilePath, "files.check", format, args...)
}

// checkBelow refuses a path of an answer that is not plainly below a directory.
// No honest process sends such a one.
func checkBelow(p string) error {
	for element := range strings.SplitSeq(p, "/") {
		if element == "" || element == "." || element == ".." || len(element) > wire.MaxName {
			return broken(fmt.Errorf("it names %q", sbxerr.Clip(p)))
		}
	}
	return nil
}

// subject is what a request is about, for the text of its errors.
type subject struct {
	verb string
	path string
	tree bool // paths in the answer are below path
}

// failure turns what the process says into an error.
func (s subject) failure(f wire.Failure) error {
	at := s.path
	switch {
	case s.tree && f.Path != "" && f.Path[0] != '/':
		at = strings.TrimRight(s.path, "/") + "/" + f.Path
	case f.Path != "":
		at = f.Path
	}
	code, why := explain(f)
	verb, _, _ := strings.Cut(s.verb, " ")
	return sbxerr.WithRemedy(code, "files."+verb, fmt.Errorf("%s %q: %w", s.verb, sbxerr.Clip(at), why), s.remedy(f))
}

// remedy is what to do about a failure of this very request; empty is its code's.
func (s subject) remedy(f wire.Failure) string {
	switch {
	case f.Reason != wire.ReasonErrno:
	case f.Errno == syscall.EXDEV:
		return "the two paths are on different file systems: copy, and remove what was copied"
	case f.Errno == syscall.ENOENT && (s.verb == "write" || s.verb == "make"):
		return "make the directory that it lies in, or ask for missing parents: make_parents"
	}
	return ""
}

func explain(f wire.Failure) (sbxerr.Code, error) {
	switch f.Reason {
	case wire.ReasonErrno:
		return codeOf(f.Errno), f.Errno
	case wire.ReasonNotFile:
		return sbxerr.FileKind, errors.New("not a regular file")
	case wire.ReasonLink:
		return sbxerr.FileKind, errors.New("a symbolic link is in the way")
	case wire.ReasonDepth:
		return sbxerr.FileTooBig, fmt.Errorf("more than %d directories deep", wire.MaxDepth)
	case wire.ReasonWatches:
		return sbxerr.FileTooBig, fmt.Errorf("more directories than can be watched, which are at most %d", wire.MaxWatches)
	case wire.ReasonChanged:
		return sbxerr.FileFailed, errors.New("the file became shorter while it was read")
	case wire.ReasonAborted:
		return sbxerr.Canceled, errors.New("given up")
	case wire.ReasonBug:
		return sbxerr.Init, errors.New("the process that works on the sandbox's files met a fault of its own")
	case wire.ReasonVersion:
		return sbxerr.Init, errors.New("the sandbox was made by another version, which does not know this request")
	}
	return sbxerr.Init, fmt.Errorf("unknown reason %d", f.Reason)
}

// codes of the errnos that a caller can act on. All others are FileFailed.
var codes = map[syscall.Errno]sbxerr.Code{
	syscall.ENOENT:       sbxerr.FileAbsent,
	syscall.EACCES:       sbxerr.FileRights,
	syscall.EPERM:        sbxerr.FileRights,
	syscall.EROFS:        sbxerr.FileRights,
	syscall.EEXIST:       sbxerr.FileExists,
	syscall.ENOTEMPTY:    sbxerr.FileExists,
	syscall.ENOTDIR:      sbxerr.FileKind,
	syscall.EISDIR:       sbxerr.FileKind,
	syscall.ELOOP:        sbxerr.FileKind,
	syscall.ENOSPC:       sbxerr.FileSpace,
	syscall.EDQUOT:       sbxerr.FileSpace,
	syscall.EFBIG:        sbxerr.FileTooBig,
	syscall.ENAMETOOLONG: sbxerr.FilePath,
}

func codeOf(errno syscall.Errno) sbxerr.Code {
	if code, ok := codes[errno]; ok {
		return code
	}
	return sbxerr.FileFailed
}
