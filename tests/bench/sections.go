package main

import (
	"fmt"
	"slices"
	"strings"
)

// section is one measurement. They run in this order: from what needs a quiet
// daemon to what makes it work.
type section struct {
	name string
	what string
	run  func(*suite)
}

var sections = []section{
	{"start", "start of the daemon", (*suite).start},
	{"cold", "cold runs side by side, memory, stages, output, image of host tools", (*suite).cold},
	{"exec", "exec in a live sandbox, over the API", (*suite).execAPI},
	{"remote", "exec over TCP with TLS, beside the socket", (*suite).remote},
	{"audit", "the audit log, and exec with and without it", (*suite).audit},
	{"exec-cli", "caisson exec, the whole process", (*suite).execCLI},
	{"output", "output of one command to a client that reads, and to one that does not", (*suite).output},
	{"http", "the same over plain HTTP/1.1, without a library", (*suite).http},
	{"mcp", "the tools of the MCP server", (*suite).mcp},
	{"pull", "pull of an image, beside ctr's, and a prune of images", (*suite).pull},
	{"pool", "create to the first command finished, from the pool", (*suite).fromPool},
	{"run-default", "caisson run on a fresh installation, the whole process", (*suite).runByDefault},
	{"run-pool", "caisson run from the pool, the whole process", (*suite).runFromPool},
	{"life", "stop, directories of the host, and the clean-up of orphans", (*suite).life},
	{"idle", "exec in a sandbox that is paused because it was idle", (*suite).idle},
	{"disk", "writable roots: creation, tar, removal", (*suite).disk},
	{"files", "copy-on-write workspaces, snapshots, forks, templates", (*suite).files},
	{"burst", "100 sandboxes asked for at once, with a pool of 20", (*suite).burst},
	{"sustained", "create, true, remove by 8 clients", (*suite).sustained},
	{"memory", "memory of 100 idle sandboxes", (*suite).memory},
	{"network", "sandboxes with a network: creation, connections, a stream, beside a veth with NAT", (*suite).network},
	{"adopt", "100 sandboxes after kill -9 of the daemon", (*suite).adopt},
	{"restart", "calls while the daemon is replaced under 100 sandboxes", (*suite).restart},
	{"many", "500 idle sandboxes", (*suite).many},
}

// choose returns the sections that only names, separated by commas; empty is
// all.
func choose(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	var chosen []section
	names := strings.Split(only, ",")
	for _, s := range sections {
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
			names = slices.DeleteFunc(names, func(n string) bool { return n == s.name })
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("there is no measurement %q, but %s", names, sectionNames())
	}
	return chosen, nil
}

func sectionNames() string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
