package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// files is the handler of sandboxd's REST API.
func (r *runtime) files() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", r.health)
	mux.HandleFunc("GET /v1/metadata", r.metadata)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, ok := strings.CutPrefix(req.URL.Path, "/v1/files")
		if !ok || name != "" && name[0] != '/' {
			mux.ServeHTTP(w, req)
			return
		}
		switch req.Method {
		case http.MethodGet, http.MethodHead:
			r.get(w, req, name)
		case http.MethodPut:
			r.put(w, req, name)
		case http.MethodDelete:
			r.remove(w, req, name)
		default:
			w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
			writeJSON(w, http.StatusMethodNotAllowed, restError{"INVALID_ARGUMENT", "files have GET, HEAD, PUT and DELETE"})
		}
	})
}

type restError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func refuse(w http.ResponseWriter, err error) {
	f := failureOf(err)
	writeJSON(w, f.status, restError{f.code, text(err).Error()})
}

func refuseAs(w http.ResponseWriter, f failure, why string) {
	writeJSON(w, f.status, restError{f.code, why})
}

func (r *runtime) health(w http.ResponseWriter, req *http.Request) {
	if _, err := r.stat(req.Context(), r.Dir); err != nil {
		refuseAs(w, unavailable, text(err).Error())
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "uptime_seconds": int64(time.Since(r.Started).Seconds())})
}

const metadataPrefix = "SANDBOX_"

// secretive is in names of variables that are never told.
var secretive = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY`)

func (r *runtime) metadata(w http.ResponseWriter, req *http.Request) {
	all, err := r.Env(req.Context())
	if err != nil {
		refuseAs(w, unavailable, err.Error())
		return
	}
	told := map[string]string{}
	for name, value := range all {
		if strings.HasPrefix(name, metadataPrefix) && !secretive.MatchString(name) {
			told[name] = value
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"env": told})
}

func (r *runtime) get(w http.ResponseWriter, req *http.Request, name string) {
	p, err := r.resolve(req.Context(), name)
	switch {
	case err != nil:
		refuse(w, err)
	case p.info == nil:
		refuse(w, sbxerr.FileAbsent)
	case p.info.Type == "directory":
		r.getDirectory(w, req, name, p)
	default:
		r.send(w, req, p, refuse)
	}
}

func (r *runtime) getDirectory(w http.ResponseWriter, req *http.Request, name string, p place) {
	type row struct {
		Name       string `json:"name"`
		Size       int64  `json:"size"`
		Type       string `json:"type"`
		ModifiedAt string `json:"modified_at"`
		Mode       string `json:"mode"` // octal
	}
	entries, err := r.list(req.Context(), p.path)
	if err != nil {
		refuse(w, err)
		return
	}
	rows := make([]row, len(entries))
	for i, e := range entries {
		rows[i] = row{e.name, e.SizeBytes, e.kind, e.ModifiedAt.AsTime().UTC().Format(time.RFC3339), fmt.Sprintf("%04o", e.Mode)}
	}
	writeJSON(w, http.StatusOK, map[string]any{"path": path.Join("/", name), "entries": rows})
}

// send answers with the bytes of a file. One that gets shorter meanwhile breaks the answer off.
func (r *runtime) send(w http.ResponseWriter, req *http.Request, p place, refuse func(http.ResponseWriter, error)) {
	h, size := w.Header(), p.info.SizeBytes
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Last-Modified", p.info.ModifiedAt.AsTime().UTC().Format(http.TimeFormat))
	if req.Method == http.MethodHead || size == 0 && p.info.Type == "file" {
		return
	}
	to := answerOf(w)
	_, err := r.caisson.ReadFile(req.Context(), &caissonv1.ReadFileRequest{Ref: r.ID, Path: p.path, Length: size}, to)
	switch {
	case err != nil && to.written == 0:
		for _, name := range []string{"Content-Length", "Last-Modified", "Content-Disposition"} {
			h.Del(name)
		}
		refuse(w, err)
	case err != nil || to.written < size:
		panic(http.ErrAbortHandler)
	}
}

var modeForm = regexp.MustCompile(`^0[0-7]{3}$`)

func (r *runtime) put(w http.ResponseWriter, req *http.Request, name string) {
	mode := uint64(0o644)
	if asked := req.URL.Query().Get("mode"); asked != "" {
		if !modeForm.MatchString(asked) {
			refuseAs(w, invalid, fmt.Sprintf("mode %q is not a 0 and three octal digits", asked))
			return
		}
		mode, _ = strconv.ParseUint(asked, 8, 32) // the form is right
	}
	var content io.Reader = bodyOf(w, req, largestFile)
	if strings.HasPrefix(req.Header.Get("Content-Type"), "multipart/form-data") {
		var err error
		if _, content, err = part(req, bodyOf(w, req, largestFile)); err != nil {
			refuse(w, err)
			return
		}
	}
	if err := r.write(req.Context(), name, uint32(mode), content); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

var errDirectory = errors.New("the path is a directory")

// write replaces a file in one step, and makes the directories above it.
func (r *runtime) write(ctx context.Context, name string, mode uint32, content io.Reader) error {
	p, err := r.resolve(ctx, name)
	if err != nil {
		return err
	}
	if p.path == r.Dir || p.info != nil && p.info.Type == "directory" {
		return errDirectory
	}
	_, err = r.caisson.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: r.ID, Path: p.path, Mode: &mode, MakeParents: true}, content)
	return err
}

// remove removes a file or directory. Of a symbolic link, it removes the link.
func (r *runtime) remove(w http.ResponseWriter, req *http.Request, name string) {
	recursive := false
	if asked := req.URL.Query().Get("recursive"); asked != "" {
		var err error
		if recursive, err = strconv.ParseBool(asked); err != nil {
			refuseAs(w, invalid, fmt.Sprintf("recursive %q is neither true nor false", asked))
			return
		}
	}
	if err := r.removePath(req.Context(), name, recursive); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *runtime) removePath(ctx context.Context, name string, recursive bool) error {
	at := path.Join(r.Dir, name)
	if at == r.Dir {
		return r.empty(ctx, recursive)
	}
	if !r.holds(at) {
		return errOutside
	}
	parent, err := r.resolve(ctx, strings.TrimPrefix(path.Dir(at), r.Dir))
	if err != nil {
		return err
	}
	target := path.Join(parent.path, path.Base(at))
	if _, err := r.stat(ctx, target); err != nil {
		return err
	}
	_, err = r.caisson.RemoveFile(ctx, &caissonv1.RemoveFileRequest{Ref: r.ID, Path: target, Recursive: recursive})
	return err
}

// empty removes all below the base directory, which stays: it may be a mount.
func (r *runtime) empty(ctx context.Context, recursive bool) error {
	if !recursive {
		return fmt.Errorf("the base directory: %w", sbxerr.FileExists)
	}
	l, err := r.caisson.ListDir(ctx, &caissonv1.ListDirRequest{Ref: r.ID, Path: r.Dir})
	if err != nil {
		return err
	}
	for _, f := range l.Files {
		if _, err := r.caisson.RemoveFile(ctx, &caissonv1.RemoveFileRequest{Ref: r.ID, Path: path.Join(r.Dir, path.Base(f.Path)), Recursive: true}); err != nil {
			return err
		}
	}
	return nil
}
