package main

import (
	"errors"
	"fmt"
	"maps"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// hostUser looks up the user of the host as whom commands run without isolation. Nil is none.
// A number without an account has the group of the same number, and no home.
func hostUser(u config.Unisolated) (*plan.HostUser, error) {
	if u.User == "" {
		return nil, nil
	}
	found, err := user.Lookup(string(u.User))
	if _, numeric := strconv.ParseUint(string(u.User), 10, 32); numeric == nil {
		if found, err = user.LookupId(string(u.User)); errors.As(err, new(user.UnknownUserIdError)) {
			found, err = &user.User{Uid: string(u.User), Gid: string(u.User), Username: string(u.User), HomeDir: "/"}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unisolated.user: no user %q on this host: %w", u.User, err)
	}
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("unisolated.user: %q: %w", u.User, err)
	}
	for _, id := range []uint64{uid, gid} {
		if id == 0 || ownUsers[uint32(id)] != "" || id > 1<<31-1 || id == 65534 || id == 65535 {
			return nil, fmt.Errorf("unisolated.user: %q is %d:%d: neither may be root's, nobody's or one of the daemon's processes'", u.User, uid, gid)
		}
	}
	return &plan.HostUser{UID: uint32(uid), GID: uint32(gid), Name: found.Username, Home: found.HomeDir}, nil
}

// checkSocket refuses a socket on which commands without isolation could call as their user,
// and so as a peer. In the directory state they find none: it is covered there.
func checkSocket(c config.Config, known map[string]plan.Profile, peers peer.Policy) error {
	names, user := unisolated(known)
	if len(names) == 0 || peers.Admit(peer.User(user.UID, user.GID, nil, 1)) != nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.Socket))
	if err == nil && (dir == c.State || strings.HasPrefix(dir, c.State+"/")) {
		return nil
	}
	return sbxerr.New(sbxerr.DaemonConf, "caissond.unisolated", "socket: %q lies outside of state, and %s is one of the peers: commands of the profiles %s could call as that user",
		c.Socket, user.Name, strings.Join(names, ", "))
}

// unisolated lists the profiles without isolation, and their user.
func unisolated(known map[string]plan.Profile) (names []string, user plan.HostUser) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if u := known[name].Unisolated; u != nil {
			names, user = append(names, name), *u
		}
	}
	return names, user
}

// warnUnisolated names the profiles without isolation in the log.
func (d *daemon) warnUnisolated(known map[string]plan.Profile) {
	if names, user := unisolated(known); len(names) > 0 {
		d.log.Warn("commands of these profiles run as a user of the host, with its files and network (isolation none)", "profiles", names, "user", user.Name, "uid", user.UID)
	}
}

// isolationChecks are findings of the doctor.
func isolationChecks(c config.Config) []runtime.Check {
	known, _ := profiles(c) // which were checked with the configuration
	names, user := unisolated(known)
	if len(names) == 0 {
		return nil
	}
	return []runtime.Check{{
		Name: "isolation", Status: "warn",
		Detail: fmt.Sprintf("commands of the profiles %s run as %s (uid %d) with the host's files and network", strings.Join(names, ", "), user.Name, user.UID),
		Remedy: "grant these profiles only to peers that may act as that user; take them out of unisolated.profiles when they are no longer needed",
	}}
}
