// Package claude reads the scripts that Claude Code gives to its shell, so that they run in
// a sandbox. Claude Code runs them with the program of CLAUDE_CODE_SHELL_PREFIX.
package claude

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Script is a script as Claude Code wrote it.
type Script struct {
	Text string
	// CwdFile is where the script leaves its working directory, and where Claude Code
	// looks for it. Empty: the script is that of a hook or of an MCP server, which has a
	// standard input.
	CwdFile string
}

// cwdFile is the end of a script that runs a command of the model. What the model wrote is
// the argument of an eval before it.
var cwdFile = regexp.MustCompile(` && pwd -P >\| ('[^']+'|[^ '"\\$]+)$`)

// snapshot is the beginning: it reads aliases and functions of the user's shell on the
// host. They call programs of the host, so the sandbox has no such file, and not every
// shell goes on without it.
var snapshot = regexp.MustCompile(`^source [^\n]*?/shell-snapshots/[^\n]*? 2>/dev/null \|\| true && `)

// Parse reads a script.
func Parse(text string) Script {
	s := Script{Text: text}
	begin := snapshot.FindStringIndex(text)
	if begin == nil {
		return s
	}
	if m := cwdFile.FindStringSubmatch(text); m != nil {
		s.Text, s.CwdFile = text[begin[1]:], strings.Trim(m[1], "'")
	}
	return s
}

// passed are the variables of Claude Code that its commands may see. All others stay
// outside: the user's keys are among them.
var passed = map[string]bool{
	"CLAUDECODE": true, "CLAUDE_CODE_SESSION_ID": true, "CLAUDE_CODE_ENTRYPOINT": true, "CLAUDE_PROJECT_DIR": true,
	"GIT_EDITOR": true, "LANG": true, "TERM": true, "TZ": true, "NO_COLOR": true, "FORCE_COLOR": true,
}

// Environment is the part of an environment that a command gets.
func Environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); passed[name] || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	return env
}

// maxCwd is more than any working directory has, in bytes.
const maxCwd = unix.PathMax

// KeepCwd writes the directory that a command ended in, as the sandbox tells it, into the
// file on the host. The file is no link, and the content one clean path.
func (s Script) KeepCwd(content []byte) error {
	dir := strings.TrimSuffix(string(content), "\n")
	if len(content) > maxCwd || !path.IsAbs(dir) || path.Clean(dir) != dir || strings.ContainsAny(dir, "\n\x00") {
		return fmt.Errorf("the command left no path as its working directory: %.100q", dir)
	}
	f, err := os.OpenFile(s.CwdFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(dir + "\n")
	return errors.Join(err, f.Close())
}
