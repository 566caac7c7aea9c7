package fromhost

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// refused are the places that no request may name and that nothing is copied
// from, however a path leads there. All below them is meant too.
var refused = map[string]string{
	"/proc":       "the kernel's view of processes",
	"/sys":        "the kernel's view of devices",
	"/dev":        "devices",
	"/run":        "state and sockets of running programs",
	"/tmp":        "files of everybody's running programs",
	"/var":        "state and data of the host",
	"/home":       "files of people",
	"/root":       "files of the administrator",
	"/boot":       "the kernel and the boot loader's configuration",
	"/lost+found": "remains of a file system check",
}

// hostState are files below /etc that are not copied even when a package
// lists them. Other files there come from package lists only.
var hostState = strings.Fields(`/etc/passwd /etc/passwd- /etc/group /etc/group- /etc/shadow /etc/shadow-
/etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/subuid /etc/subgid /etc/sudoers /etc/sudoers.d
/etc/machine-id /etc/hostname /etc/hosts /etc/resolv.conf /etc/nsswitch.conf /etc/fstab /etc/mtab
/etc/crypttab /etc/krb5.keytab /etc/ssl/private /etc/pki/tls/private /etc/ld.so.cache`)

const credentials = "credentials"

// secretNames are names that hold credentials by convention, wherever they lie.
var secretNames = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".my.cnf",
	".git-credentials", ".npmrc", ".pypirc", ".vault-token",
	"ssh_host_dsa_key", "ssh_host_ecdsa_key", "ssh_host_ed25519_key", "ssh_host_rsa_key",
}

// documentation is what packages bring for people. An image is for programs, and the
// package is still on the host. Debug symbols have packages of their own, which are asked
// for or needed: valgrind does not run without those of the C library.
var documentation = []string{
	"/usr/share/doc", "/usr/share/doc-base", "/usr/share/info", "/usr/share/man", "/usr/share/gtk-doc",
	"/usr/share/help", "/usr/share/lintian", "/usr/share/bug", "/usr/share/menu", "/usr/share/linda",
	"/usr/share/locale", "/usr/local/share/man", "/usr/local/share/doc", "/usr/lib/.build-id",
}

// locales is where compiled locales lie. All but keptLocales are left out.
const locales = "/usr/lib/locale"

var keptLocales = []string{"C.utf8", "C.UTF-8"}

// below reports whether p is dir or lies in it.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// neverCopied says why p, a path without symbolic links, stays behind.
func neverCopied(p string) (why string, never bool) {
	for dir := p; dir != "/"; dir = path.Dir(dir) {
		if why, never := refused[dir]; never {
			return why, true
		}
		if slices.Contains(hostState, dir) {
			return "state of the host", true
		}
		if slices.Contains(secretNames, path.Base(dir)) {
			return credentials, true
		}
	}
	return "", false
}

// isDocumentation reports whether a package's file p can be spared.
func isDocumentation(p string) bool {
	if slices.ContainsFunc(documentation, func(d string) bool { return below(p, d) }) {
		return true
	}
	if !below(p, locales) || p == locales {
		return false
	}
	name := split(strings.TrimPrefix(p, locales))[0]
	return !slices.Contains(keptLocales, name)
}

// isShared reports whether directory p belongs to the host as a whole rather
// than to one piece of software, so that a link to it means no wish to have
// all of it.
func isShared(p string) bool {
	switch len(split(p)) {
	case 0, 1:
		return true
	case 2:
		return below(p, "/usr") || below(p, "/etc")
	case 3:
		return below(p, "/usr/local") || below(p, "/usr/lib") && strings.Contains(path.Base(p), "-linux-")
	}
	return false
}

// checkPath reports why a request may not name p. It looks at the text only;
// where p leads is checked again with neverCopied.
func checkPath(p string) error {
	switch {
	case !path.IsAbs(p):
		return fmt.Errorf("path %q is relative: give an absolute one", sbxerr.Clip(p))
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("path %q holds a NUL byte", sbxerr.Clip(p))
	case path.Clean(p) != strings.TrimRight(p, "/") && p != "/":
		return fmt.Errorf("path %q is not clean: give %q", sbxerr.Clip(p), sbxerr.Clip(path.Clean(p)))
	case p == "/":
		return fmt.Errorf("path %q is the whole host: name the software in it", sbxerr.Clip(p))
	}
	return checkPlace(p, path.Clean(p))
}

// checkPlace reports why the place where the requested path asked leads is
// refused.
func checkPlace(asked, at string) error {
	name := fmt.Sprintf("path %q", asked)
	if asked != at {
		name += fmt.Sprintf(", which leads to %q,", at)
	}
	if below(at, "/etc") {
		return fmt.Errorf("%s is refused: /etc holds the configuration of the host; packages bring theirs", name)
	}
	if why, never := neverCopied(at); never {
		return fmt.Errorf("%s is refused: it holds %s", name, why)
	}
	if at == "/" {
		return fmt.Errorf("%s is refused: it is the whole host", name)
	}
	return nil
}
