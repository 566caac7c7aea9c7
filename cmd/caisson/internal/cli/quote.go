package cli

import (
	"path/filepath"
	"slices"
	"strings"
)

// QuoteArgs are arguments as a shell takes them.
func QuoteArgs(args []string) string {
	quoted := slices.Clone(args)
	for i, arg := range quoted {
		if strings.ContainsAny(arg, " \t\n'\"\\$`*?[]{}()<>|&;#~!") || arg == "" {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// SocketFlag names the daemon for a process that is started anywhere later, and may not get
// this one's environment.
func (a *App) SocketFlag() []string {
	r := a.remote
	switch {
	case r.flags != nil && r.flags.Changed("context"):
		return []string{"--context", r.context}
	case r.flags != nil && r.flags.Changed("host"):
		return []string{"--host", r.host}
	case a.Socket == a.AutoSocket:
		return nil
	}
	path, err := filepath.Abs(a.Socket)
	if err != nil { // the working directory is gone
		path = a.Socket
	}
	return []string{"--socket", path}
}
