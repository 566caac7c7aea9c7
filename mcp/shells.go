package mcp

import (
	"context"
	"sync"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// maxScript is the longest script that is passed as one argument, in bytes; see
// MAX_ARG_STRLEN in execve(2), which is 128 KiB with what is around it.
const maxScript = 120 << 10

// withSession runs the script $1 with the working directory and the exported variables
// that an earlier one of the session left in the file $2, and leaves them there. A
// directory that is gone meanwhile is no failure.
const withSession = `if [ -f "$2" ]; then . "$2"; cd "$(cat "$2.cwd")" 2>/dev/null; fi
trap 'e=$?; (umask 077; export -p > "$2.$$" && mv "$2.$$" "$2" && pwd > "$2.cwd"); exit $e' EXIT
eval "$1"`

// shells remembers which shell a sandbox has.
type shells struct {
	mu    sync.Mutex
	found map[string]string
}

// shell is bash where the sandbox has it, else sh.
func (s *Server) shell(ctx context.Context, ref string) (string, error) {
	s.shells.mu.Lock()
	defer s.shells.mu.Unlock()
	if path := s.shells.found[ref]; path != "" {
		return path, nil
	}
	answer, err := s.client.Output(ctx, ref, &caissonv1.ExecSpec{Args: []string{"/bin/sh", "-c", "command -v bash || command -v sh"}}, nil)
	if err != nil {
		return "", err
	}
	path := firstLine(string(answer.GetStdout()))
	if path == "" {
		return "", refused("the sandbox %q has no shell: use an image with /bin/sh", ref)
	}
	if s.shells.found == nil {
		s.shells.found = map[string]string{}
	}
	s.shells.found[ref] = path
	return path, nil
}

// args are those with which a shell runs the script as it was typed.
func args(shell, script, session string) []string {
	if session == "" {
		return []string{shell, "-c", script}
	}
	return []string{shell, "-c", withSession, shell, script, "/tmp/.session-" + session}
}
