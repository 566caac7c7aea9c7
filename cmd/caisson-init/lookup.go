package main

import (
	"strings"
	"syscall"
)

// defaultPath is searched for a command whose environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookup finds name as execvp(3) does: with a slash it is a path, else each
// directory of PATH is tried, an empty one being the working directory. The
// error is EACCES if something was found that cannot be executed.
func lookup(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if name == "" {
		return "", syscall.ENOENT
	}
	path, ok := getenv(env, "PATH")
	if !ok {
		path = defaultPath
	}
	err := error(syscall.ENOENT)
	for _, dir := range strings.Split(path, ":") {
		file := join(dir, name)
		switch executable(file) {
		case nil:
			return file, nil
		case syscall.EACCES:
			err = syscall.EACCES
		}
	}
	return "", err
}

func join(dir, name string) string {
	if dir == "" {
		return "./" + name
	}
	return dir + "/" + name
}

// executable asks for a regular file that this process may execute. The
// kernel decides again at execve(2): nothing rests on this answer.
func executable(file string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(file, &stat); err != nil {
		return err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return syscall.EACCES
	}
	const xOK = 1
	return syscall.Access(file, xOK)
}

// getenv returns the first entry, as getenv(3) does.
func getenv(env []string, name string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// makeHome makes the directory HOME where it is below /home, an empty tmpfs in
// most sandboxes. Where that is not possible the command finds out by itself,
// as it does where HOME is anywhere else.
func makeHome(env []string) {
	home, _ := getenv(env, "HOME")
	rest, ok := strings.CutPrefix(home, "/home/")
	if !ok {
		return
	}
	path := "/home"
	for _, name := range strings.Split(rest, "/") {
		if name == "" || name == "." || name == ".." {
			return
		}
		path += "/" + name
		_ = syscall.Mkdir(path, 0o700)
	}
}
