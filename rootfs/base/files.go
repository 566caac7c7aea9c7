package base

// dirs are made with these modes, owned by root, parents first. Those that
// every sandbox mounts over are here, too, so that the image is complete by
// itself.
var dirs = []struct {
	name string
	mode int64
}{
	{"bin", 0o755},
	{"dev", 0o755},
	{"etc", 0o755},
	{"etc/ssl", 0o755},
	{"etc/ssl/certs", 0o755}, // empty: no certificate is trusted unless an image brings it
	{"home", 0o755},
	{"lib", 0o755},
	{"opt", 0o755},
	{"proc", 0o555},
	{"root", 0o700},
	{"run", 0o755},
	{"sys", 0o555},
	{"tmp", 0o1777},
	{"usr", 0o755},
	{"usr/lib", 0o755},
	{"usr/local", 0o755},
	{"usr/local/bin", 0o755},
	{"usr/local/lib", 0o755},
	{"usr/local/sbin", 0o755},
	{"usr/share", 0o755},
	{"var", 0o755},
	{"var/cache", 0o755},
	{"var/lib", 0o755},
	{"var/log", 0o755},
	{"var/tmp", 0o1777},
	{"workspace", 0o755},
}

// links are the symlinks that programs expect besides the applets. All
// commands are in /bin and found under each of the usual paths, such as
// /usr/bin/env.
var links = []struct{ name, target string }{
	{"etc/mtab", "/proc/self/mounts"},
	{"sbin", "bin"},
	{"usr/bin", "../bin"},
	{"usr/sbin", "../bin"},
	{"var/run", "/run"},
}

// texts are the files that programs expect.
var texts = []struct{ name, content string }{
	{"etc/group", `root:x:0:
caisson:x:1000:
nogroup:x:65534:
`},
	{"etc/nsswitch.conf", `passwd: files
group: files
hosts: files dns
`},
	{"etc/os-release", `ID=caisson-base
NAME="caisson base"
PRETTY_NAME="caisson base (busybox)"
`},
	{"etc/passwd", `root:x:0:0:root:/root:/bin/sh
caisson:x:1000:1000:caisson:/home/caisson:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
`},
	{"etc/profile", `export PATH="${PATH:-` + searchPath + `}"
`},
	{"etc/shells", `/bin/sh
/bin/ash
`},
}
