package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
)

// tamper stands in for runc: before a container is made it changes the bundle
// as the file "tamper" beside it says, and then becomes the real runc. So the
// daemon meets a runtime that does something else than it was told.
func tamper(args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Dir(exe)
	kind := strings.TrimSpace(readText(filepath.Join(dir, "tamper")))
	for i, arg := range args {
		if arg == "--bundle" && i+1 < len(args) {
			if err := tamperBundle(args[i+1], kind); err != nil {
				return err
			}
		}
		if arg == "features" && kind == "no-seccomp" {
			return withoutSeccomp(dir)
		}
		if arg == "--version" && kind == "old" {
			fmt.Println("runc version 1.1.4")
			return nil
		}
	}
	real := filepath.Join(dir, "runc.real")
	return syscall.Exec(real, append([]string{real}, args[1:]...), os.Environ())
}

type object = map[string]any

// tampers are the changes, by name.
var tampers = map[string]func(spec object){
	"seccomp":        func(s object) { delete(part(s, "linux"), "seccomp") },
	"capability":     func(s object) { part(s, "process")["capabilities"] = capabilities("CAP_NET_RAW") },
	"no-new-privs":   func(s object) { part(s, "process")["noNewPrivileges"] = false },
	"user":           func(s object) { part(part(s, "process"), "user")["gid"] = 0 },
	"group":          func(s object) { part(part(s, "process"), "user")["additionalGids"] = []int{5} },
	"memory":         func(s object) { resources(s)["memory"] = object{"limit": 8 << 30, "swap": 8 << 30} },
	"pids":           func(s object) { resources(s)["pids"] = object{"limit": 100000} },
	"cpu":            func(s object) { resources(s)["cpu"] = object{"quota": 900000, "period": 100000} },
	"masked-path":    func(s object) { dropPath(s, "maskedPaths", "/proc/kallsyms") },
	"read-only-path": func(s object) { dropPath(s, "readonlyPaths", "/proc/sys") },
	"mount": func(s object) {
		appendTo(s, "mounts", object{"destination": "/tmp", "type": "bind", "source": "/etc", "options": []string{"bind", "ro"}})
	},
	"mount-options": func(s object) { s["mounts"].([]any)[0].(object)["options"] = []string{"noexec", "nodev"} },
	"writable-usr": func(s object) {
		appendTo(s, "mounts", object{"destination": "/usr", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev"}})
	},
	"oom-score":    func(s object) { part(s, "process")["oomScoreAdj"] = 999 },
	"host-network": func(s object) { dropNamespace(s, "network") },
	"host-ipc":     hostIPC,
	"environment":  func(s object) { appendTo(part(s, "process"), "env", "LD_PRELOAD=/x") },
	"device": func(s object) {
		part(s, "linux")["devices"] = []object{{"path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11}}
	},
	"id-map":     widenIDs,
	"users":      ownUsers,
	"no-seccomp": func(object) {},
	"old":        func(object) {},
	"neither":    func(s object) { delete(part(s, "linux"), "seccomp"); part(s, "process")["noNewPrivileges"] = false },
	"nothing":    func(object) {},

	"filter-allow": func(s object) {
		filter := part(part(s, "linux"), "seccomp")
		filter["defaultAction"] = "SCMP_ACT_ALLOW"
		delete(filter, "defaultErrnoRet")
		delete(filter, "syscalls")
	},
	"filter-rule": func(s object) { changeCall(s, "clone3", nil) },
	"filter-condition": func(s object) {
		changeCall(s, "socket", object{"names": []string{"socket"}, "action": "SCMP_ACT_ALLOW"})
	},
	"filter-narrow": func(s object) { changeCall(s, "getcwd", nil) },
	"filter-arch":   func(s object) { appendTo(part(part(s, "linux"), "seccomp"), "architectures", otherArch()) },
}

// changeCall takes the rules about a call out of the filter and puts another in.
func changeCall(s object, name string, instead any) {
	filter := part(part(s, "linux"), "seccomp")
	var kept []any
	rules, _ := filter["syscalls"].([]any)
	for _, r := range rules {
		rule := r.(object)
		names := slices.DeleteFunc(rule["names"].([]any), func(n any) bool { return n == name })
		if rule["names"] = names; len(names) > 0 {
			kept = append(kept, rule)
		}
	}
	if instead != nil {
		kept = append(kept, instead)
	}
	filter["syscalls"] = kept
}

// otherArch is an architecture that this kernel may enter a call by, too.
func otherArch() string {
	if goruntime.GOARCH == "arm64" {
		return "SCMP_ARCH_ARM"
	}
	return "SCMP_ARCH_X86"
}

// withoutSeccomp prints the features of a runc that was built without seccomp.
func withoutSeccomp(dir string) error {
	out, err := exec.Command(filepath.Join(dir, "runc.real"), "features").Output()
	if err != nil {
		return err
	}
	var features object
	if err := json.Unmarshal(out, &features); err != nil {
		return err
	}
	part(features, "linux")["seccomp"] = object{"enabled": false}
	return json.NewEncoder(os.Stdout).Encode(features)
}

func tamperBundle(dir, kind string) error {
	change := tampers[kind]
	if change == nil {
		return fmt.Errorf("no change %q", kind)
	}
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec object
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	change(spec)
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func part(o object, name string) object {
	p, _ := o[name].(object)
	return p
}

func resources(s object) object { return part(part(s, "linux"), "resources") }

func appendTo(o object, list string, v any) {
	old, _ := o[list].([]any)
	o[list] = append(old, v)
}

func capabilities(name string) object {
	all := object{}
	for _, set := range []string{"bounding", "effective", "inheritable", "permitted", "ambient"} {
		all[set] = []string{name}
	}
	return all
}

func dropPath(s object, list, path string) {
	linux := part(s, "linux")
	old, _ := linux[list].([]any)
	linux[list] = slices.DeleteFunc(old, func(v any) bool { return v == path })
}

func dropNamespace(s object, kind string) {
	linux := part(s, "linux")
	old, _ := linux["namespaces"].([]any)
	linux["namespaces"] = slices.DeleteFunc(old, func(v any) bool { return v.(object)["type"] == kind })
}

// ownUsers makes the user namespace root's, with the mapping that is declared.
func ownUsers(s object) { mapIDs(s, 1<<16) }

// mapIDs gives the sandbox a user namespace of its own, with so many ids from the
// first of its block on, which is the group of its directory.
func mapIDs(s object, size int) {
	linux := part(s, "linux")
	for _, v := range linux["namespaces"].([]any) {
		n := v.(object)
		if n["type"] != "user" {
			continue
		}
		var dir syscall.Stat_t
		if err := syscall.Stat(filepath.Dir(n["path"].(string)), &dir); err != nil {
			panic(err)
		}
		delete(n, "path")
		for _, list := range []string{"uidMappings", "gidMappings"} {
			linux[list] = []any{object{"containerID": 0, "hostID": dir.Gid, "size": size}}
		}
	}
}

// hostIPC also leaves out the mount that only an ipc namespace of one's own
// can have.
func hostIPC(s object) {
	dropNamespace(s, "ipc")
	mounts, _ := s["mounts"].([]any)
	s["mounts"] = slices.DeleteFunc(mounts, func(v any) bool { return v.(object)["type"] == "mqueue" })
}

// widenIDs adds the next block of host ids to the sandbox's own.
func widenIDs(s object) { mapIDs(s, 2<<16) }
