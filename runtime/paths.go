package runtime

import (
	"path/filepath"
	"strconv"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// paths derives every host path of a sandbox from its ID, so that removing it
// needs no memory of how it was made. docs/reference/files.md lists them.
type paths struct {
	root  string // on disk: survives the boot
	state string // on tmpfs: dies with it
}

// ClaimsDir is where a daemon with the given state directory keeps the claims of
// its sandboxes on blocks of host ids.
func ClaimsDir(state string) string { return paths{state: state}.ids() }

// input is the file that counts a command's input.
func (p paths) input(id string, n uint32) string {
	return filepath.Join(p.spare(id), number(n)+".stdin")
}

// TrafficFiles says where a daemon with these directories keeps what sandboxes
// tried to reach.
func TrafficFiles(root, state string) traffic.Files {
	p := paths{root: root, state: state}
	return traffic.Files{Carried: p.carried, Rest: p.traffic, Names: p.names}
}

// SpendingFile is where a daemon with this directory keeps what requests by routes took.
func SpendingFile(root string) string { return filepath.Join(root, "spending.json") }

func (p paths) sandboxes() string  { return filepath.Join(p.state, "sandboxes") }
func (p paths) bpf() string        { return filepath.Join(p.state, "bpf") }
func (p paths) ids() string        { return filepath.Join(p.state, "ids") }
func (p paths) outputs() string    { return filepath.Join(p.root, "output") }
func (p paths) spool() string      { return filepath.Join(p.root, "spool") }
func (p paths) uses() string       { return filepath.Join(p.root, "uses") }
func (p paths) usages() string     { return filepath.Join(p.root, "usage") }
func (p paths) volumes() string    { return filepath.Join(p.root, "volumes") }
func (p paths) disks() string      { return filepath.Join(p.root, "disks") }
func (p paths) applies() string    { return filepath.Join(p.root, "applies") }
func (p paths) changesets() string { return filepath.Join(p.root, "changesets") }
func (p paths) snapshots() string  { return filepath.Join(p.root, "snapshots") }
func (p paths) templates() string  { return filepath.Join(p.root, "templates") }

// view is for the time in which the daemon opens an image for itself.
func (p paths) view() string { return filepath.Join(p.state, "view") }

func (p paths) sandbox(id string) string { return filepath.Join(p.sandboxes(), id) }

func (p paths) record(id string) string    { return filepath.Join(p.sandbox(id), "record.json") }
func (p paths) applied(id string) string   { return filepath.Join(p.sandbox(id), "applied.json") }
func (p paths) spec(id string) string      { return filepath.Join(p.sandbox(id), "spec.json") }
func (p paths) execs(id string) string     { return filepath.Join(p.sandbox(id), "execs.jsonl") }
func (p paths) names(id string) string     { return filepath.Join(p.sandbox(id), "names") }
func (p paths) private(id string) string   { return filepath.Join(p.sandbox(id), "private") }
func (p paths) layers(id string) string    { return filepath.Join(p.sandbox(id), "layers") }
func (p paths) upper(id string) string     { return filepath.Join(p.sandbox(id), "upper") }
func (p paths) rootfs(id string) string    { return filepath.Join(p.sandbox(id), "rootfs") }
func (p paths) workspace(id string) string { return p.point(id, plan.WorkspacePoint) }
func (p paths) mounts(id string) string    { return p.point(id, plan.MountsDir) }
func (p paths) userns(id string) string    { return filepath.Join(p.sandbox(id), "userns") }
func (p paths) netns(id string) string     { return filepath.Join(p.sandbox(id), "netns") }
func (p paths) homes(id string) string     { return p.point(id, plan.HomesDir) }
func (p paths) own(id string) string       { return filepath.Join(p.sandbox(id), "own") }
func (p paths) dev(id string) string       { return mount.DevDir(p.own(id)) }
func (p paths) ends(id string) string      { return mount.EndsFile(p.own(id)) }
func (p paths) init(id string) string      { return filepath.Join(p.sandbox(id), "init") }

func (p paths) output(id string) string { return filepath.Join(p.outputs(), id) }

// diskDir has the image of the sandbox's disk, and disk is where that is mounted.
func (p paths) diskDir(id string) string   { return filepath.Join(p.disks(), id) }
func (p paths) diskImage(id string) string { return filepath.Join(p.diskDir(id), "image") }
func (p paths) disk(id string) string      { return p.point(id, plan.DiskPoint) }

// held is where the workspace of a sandbox that may make others is mounted a second time, with
// the ids on disk: its children get directories of that.
func (p paths) held(id string) string { return filepath.Join(p.mounts(id), "held") }

// point is where a bind of the plan is attached.
func (p paths) point(id, name string) string { return filepath.Join(p.sandbox(id), name) }

// carried is where package traffic keeps the connections of the sandbox.
func (p paths) carried(id string) string { return filepath.Join(p.output(id), "carried.jsonl") }

// traffic is where it keeps what else the sandbox tried.
func (p paths) traffic(id string) string { return filepath.Join(p.output(id), "traffic.jsonl") }

func (p paths) stdout(id string, n uint32) string {
	return filepath.Join(p.output(id), number(n)+".stdout")
}

func (p paths) stderr(id string, n uint32) string {
	return filepath.Join(p.output(id), number(n)+".stderr")
}

// spare is where output is kept of which the disk takes nothing, under the same names.
func (p paths) spare(id string) string { return filepath.Join(p.sandbox(id), "output") }

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// places are the paths that the spec of a sandbox names.
func (p paths) places(id, cgroup string) plan.Places {
	return plan.Places{
		Base: p.state, State: p.sandbox(id), Rootfs: p.rootfs(id), Init: p.init(id), Dev: p.dev(id), NetNS: p.netns(id), UserNS: p.userns(id),
		Cgroup: cgroup,
	}
}
