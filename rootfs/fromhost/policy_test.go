package fromhost

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestNeverCopied(t *testing.T) {
	tests := map[string]bool{
		"/usr/bin/git": false, "/etc/gitconfig": false, "/opt/tool/varnish": false, "/variant": false,
		"/etc/ssh/ssh_config": false, "/usr/lib/ssl/private.pl": false, "/homeless": false,
		"/var/lib/dpkg/status": true, "/var": true, "/home/ann/x": true, "/root": true, "/proc/1/environ": true,
		"/sys/class": true, "/dev/sda": true, "/run/docker.sock": true, "/tmp/x": true, "/boot/vmlinuz": true,
		"/etc/shadow": true, "/etc/shadow-": true, "/etc/gshadow": true, "/etc/machine-id": true,
		"/etc/ssh/ssh_host_rsa_key": true, "/etc/ssl/private/x.key": true, "/etc/sudoers.d/ann": true,
		"/etc/ld.so.cache": true, "/etc/passwd": true, "/etc/resolv.conf": true,
		"/opt/app/.ssh/id_rsa": true, "/opt/app/.git-credentials": true, "/srv/.netrc": true,
	}
	for p, want := range tests {
		if why, never := neverCopied(p); never != want || never && why == "" {
			t.Errorf("neverCopied(%q) = %q, %v; want %v", p, why, never, want)
		}
	}
}

func TestDocumentation(t *testing.T) {
	tests := map[string]bool{
		"/usr/share/doc/git/copyright": true, "/usr/share/man/man1/git.1.gz": true, "/usr/share/locale/de/x.mo": true,
		"/usr/lib/locale/de_DE.utf8/LC_TIME": true, "/usr/lib/locale/locale-archive": true, "/usr/lib/.build-id/00": true,
		"/usr/lib/locale": false, "/usr/lib/locale/C.utf8/LC_CTYPE": false, "/usr/share/docker": false, "/usr/share/git-core": false,
	}
	for p, want := range tests {
		if got := isDocumentation(p); got != want {
			t.Errorf("isDocumentation(%q) = %v, want %v", p, got, want)
		}
	}
}

func TestShared(t *testing.T) {
	for _, p := range []string{"/", "/opt", "/usr", "/usr/lib", "/usr/share", "/usr/local", "/usr/local/bin", "/usr/lib/x86_64-linux-gnu", "/etc/ssl"} {
		if !isShared(p) {
			t.Errorf("%q belongs to one piece of software", p)
		}
	}
	for _, p := range []string{"/opt/x", "/usr/share/nodejs", "/usr/lib/go-1.19", "/usr/local/go/src", "/usr/lib/x86_64-linux-gnu/perl"} {
		if isShared(p) {
			t.Errorf("%q belongs to the host as a whole", p)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := ample
	tests := []struct {
		name string
		req  Request
		code sbxerr.Code
		want []string // all of them are in the message
	}{
		{"nothing", Request{Limits: ok}, sbxerr.Config, []string{"nothing is asked for"}},
		{"limits", Request{Packages: []string{"git"}}, sbxerr.Limits, []string{"bytes", "entries"}},
		{"all reasons of packages", Request{Packages: []string{"git", "-rf", "a/b", "x y", ""}, Limits: ok}, sbxerr.Config, []string{`"-rf"`, `"a/b"`, `"x y"`, `""`}},
		{"all reasons of paths", Request{
			Paths: []string{
				"usr/bin", "/", "/proc", "/sys/x", "/dev/null", "/run/x", "/home/ann/go", "/root", "/var/lib", "/etc/ssl", "/tmp/x",
				"/usr/../etc", "/usr/local/.ssh", "/usr//bin", "/opt/x\x00",
			},
			Limits: ok,
		}, sbxerr.Config, []string{
			`"usr/bin" is relative`, `"/" is the whole host`, `"/proc"`, `"/sys/x"`, `"/dev/null"`, `"/run/x"`,
			`"/home/ann/go"`, `"/root"`, `"/var/lib"`, `"/etc/ssl"`, `"/tmp/x"`, `give "/etc"`, `"/usr/local/.ssh"`, `give "/usr/bin"`, "NUL",
		}},
		{"good", Request{Packages: []string{"git", "libc6:amd64", "g++", "perl-base"}, Paths: []string{"/usr/local/go", "/opt/x/"}, Limits: ok}, "", nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.req.Validate()
			if sbxerr.Of(err) != tc.code {
				t.Fatalf("got %v, want code %q", err, tc.code)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %s", err, w)
				}
			}
			if tc.code == "" && err != nil {
				t.Error(err)
			}
		})
	}
	if err := (Request{Limits: ok, Paths: []string{"/opt"}}).Validate(); errors.Is(err, sbxerr.Config) {
		t.Error(err)
	}
}
