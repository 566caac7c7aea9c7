package agentsandbox

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const (
	// largestCommand is the most of a request of /execute, in bytes.
	largestCommand = 1 << 20
	// largestFile is the most that is taken of a file, in bytes; the sandbox's disk may hold less.
	largestFile = 1 << 30
)

// python is the handler of python-runtime.
func (r *runtime) python() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", r.pythonHealth)
	mux.HandleFunc("POST /execute", r.execute)
	mux.HandleFunc("POST /upload", r.upload)
	return paths(mux, map[string]func(http.ResponseWriter, *http.Request, string){
		"/download/": r.download, "/list/": r.pythonList, "/exists/": r.exists})
}

// paths routes GET requests whose rest is a path of a file. The mux of net/http would answer one with
// ".." by a redirection.
func paths(other http.Handler, routes map[string]func(http.ResponseWriter, *http.Request, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, handle := range routes {
			if name, ok := strings.CutPrefix(r.URL.Path, prefix); ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				handle(w, r, name)
				return
			}
		}
		other.ServeHTTP(w, r)
	})
}

type message struct {
	Message string `json:"message"`
}

func pythonError(w http.ResponseWriter, err error) {
	writeJSON(w, failureOf(err).status, message{text(err).Error()})
}

func (r *runtime) pythonHealth(w http.ResponseWriter, req *http.Request) {
	if _, err := r.stat(req.Context(), r.Dir); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, message{text(err).Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "message": "Sandbox Runtime is active."})
}

// detail is how a request is refused that does not fit the protocol.
func detail(w http.ResponseWriter, status int, why string) {
	writeJSON(w, status, map[string]string{"detail": why})
}

type executed struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int32  `json:"exit_code"`
}

// execute runs a command. One that could not run is told as one that failed, as the original does.
func (r *runtime) execute(w http.ResponseWriter, req *http.Request) {
	if kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); kind != "application/json" {
		detail(w, http.StatusUnsupportedMediaType, "the body is application/json")
		return
	}
	text, err := io.ReadAll(bodyOf(w, req, largestCommand))
	if err != nil {
		detail(w, failureOf(err).status, err.Error())
		return
	}
	var asked struct {
		Command *string `json:"command"`
	}
	if err := json.Unmarshal(text, &asked); err != nil || asked.Command == nil {
		detail(w, http.StatusUnprocessableEntity, `the body is {"command": "…"}`)
		return
	}
	writeJSON(w, http.StatusOK, r.executeLine(req, *asked.Command))
}

func (r *runtime) executeLine(req *http.Request, line string) executed {
	args, err := split(line)
	switch {
	case err != nil:
		return notExecuted(err.Error())
	case len(args) == 0:
		return notExecuted("the command is empty")
	}
	f, err := r.run(req.Context(), &caissonv1.ExecSpec{Args: args, Workdir: r.Dir})
	defer f.free()
	if err != nil {
		return notExecuted(text(err).Error())
	}
	code := f.ExitCode
	if f.Signal != 0 {
		code = -f.Signal // as Python's subprocess
	}
	return executed{Stdout: f.stdout.String(), Stderr: f.stderr.String(), ExitCode: code}
}

func notExecuted(why string) executed {
	return executed{Stderr: "Failed to execute command: " + why, ExitCode: 1}
}

func (r *runtime) upload(w http.ResponseWriter, req *http.Request) {
	name, file, err := part(req, bodyOf(w, req, largestFile))
	if errors.Is(err, errPart) || err == nil && name == "" {
		detail(w, http.StatusUnprocessableEntity, errPart.Error()+" with a file name")
		return
	}
	if err == nil {
		err = r.write(req.Context(), name, 0o644, file)
	}
	if err != nil {
		pythonError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, message{"File '" + name + "' uploaded successfully."})
}

func (r *runtime) download(w http.ResponseWriter, req *http.Request, name string) {
	p, err := r.resolve(req.Context(), name)
	switch {
	case err != nil:
		pythonError(w, err)
	case p.info == nil || p.info.Type == "directory":
		writeJSON(w, http.StatusNotFound, message{"File not found"})
	default:
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
		r.send(w, req, p, pythonError)
	}
}

func (r *runtime) pythonList(w http.ResponseWriter, req *http.Request, name string) {
	type row struct {
		Name    string  `json:"name"`
		Size    int64   `json:"size"`
		Type    string  `json:"type"`
		ModTime float64 `json:"mod_time"` // seconds since 1970
	}
	p, err := r.resolve(req.Context(), name)
	if err == nil && (p.info == nil || p.info.Type != "directory") {
		writeJSON(w, http.StatusNotFound, message{"Path is not a directory"})
		return
	}
	var entries []entry
	if err == nil {
		entries, err = r.list(req.Context(), p.path)
	}
	if err != nil {
		pythonError(w, err)
		return
	}
	rows := make([]row, len(entries))
	for i, e := range entries {
		rows[i] = row{e.name, e.SizeBytes, e.kind, float64(e.ModifiedAt.AsTime().UnixMicro()) / 1e6}
	}
	writeJSON(w, http.StatusOK, rows)
}

func (r *runtime) exists(w http.ResponseWriter, req *http.Request, name string) {
	p, err := r.resolve(req.Context(), name)
	if err != nil {
		pythonError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"path": name, "exists": p.info != nil})
}
