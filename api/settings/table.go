package settings

import caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"

// Limits are the limits of one sandbox, resolved. Other packages define their own type of
// this one (type Limits settings.Limits): each has its own methods, and the compiler checks a
// conversion. Records hold it as JSON.
type Limits struct {
	MemoryBytes int64 // anonymous memory, page cache, tmpfs and kernel memory together
	MilliCPU    int64 // 1000 is one CPU
	PIDs        int64 // tasks, that is processes and threads, PID 1 included
	OpenFiles   int64 // of each process
	TmpfsBytes  int64 // of each tmpfs; 0, in a profile, follows from MemoryBytes
	// CPUShares is the weight against other groups while CPUs are short, in the measure of
	// cgroup v1. 0, in a record of an older daemon, is the default.
	CPUShares  int64
	ShmBytes   int64  // of /dev/shm; 0, in a profile or the record of an older daemon, is TmpfsBytes
	IOReadBPS  int64  // with each disk, in bytes per second; 0 is unbounded. Cached pages are read at full speed.
	IOWriteBPS int64  // cgroup v2 only
	DiskBytes  int64  `json:",omitempty"` // of the sandbox's own file system on the host's disk; 0: it has none
	DiskInodes int64  `json:",omitempty"` // files and directories there; 0 follows from DiskBytes
	Disks      string // with which the sandbox has traffic: see cgroups.Disks; empty without a rate
}

// Limit is one limit of a sandbox: all that is decided of it in one place.
type Limit struct {
	Field      string // of the API's Limits
	Name       string // in refusals
	Key        string // in a profile, and in the limits of a peer, of the configuration
	Controller string // of the cgroup that enforces it; empty: none does

	Unit     Unit
	Min, Max int64
	Why      string // what Min is, after its number
	Example  string
	Zero     Zero
	Default  int64 // of the built-in profiles; 0 follows from another limit, or is no bound
	Ceiling  int64 // for a listed peer whose entry names none; 0 is no ceiling

	Flag, Short string
	Usage       string // of the flag where a sandbox is made
	Update      string // of the flag where one is changed; empty: a live sandbox keeps it

	Kind       bool   // a ready sandbox must have been made with it
	Unisolated bool   // it holds without isolation
	Held       string // how, for the list of what a host can do

	Of     func(*Limits) *int64
	Asked  func(*caissonv1.Limits) **int64
	Change func(*caissonv1.UpdateRequest) **int64 // nil: a live sandbox keeps it
}

// Zero is what a limit of 0 means. A request to make a sandbox may never name it.
type Zero int

// The meanings of 0.
const (
	Refused   Zero = iota // nothing
	Unset                 // in profiles and records: Default, or what follows from another limit
	Unbounded             // no bound; an update may ask for it
	None                  // the sandbox has no such resource
)

// Table has every limit, in the order in which they are shown.
//
// PID 1 needs the least memory and pids, measured with a static Go program that starts four
// commands. Below 8 MiB it is killed now and then. With fewer than 8 tasks the Go runtime
// aborts because it gets no thread; twice that leaves room on hosts with many CPUs. Below the
// least rate of I/O a single readahead of the kernel takes seconds. Most of the upper bounds
// only catch mistakes of unit.
var Table = [...]Limit{
	{
		Field: "memory_bytes", Name: "memory", Key: "memory", Controller: "memory",
		Unit: Bytes, Min: 8 << 20, Max: MaxMemoryBytes,
		Why: "bytes (8 MiB), which PID 1 needs to live", Example: "512M", Default: 512 << 20, Ceiling: 2 << 30, Unisolated: true,
		Held: "hard, without swap",
		Flag: "memory", Short: "m",
		Usage:  "memory limit `SIZE`, without swap, such as 2G (default: the profile's, else 512M)",
		Update: "memory limit `SIZE`, without swap, such as 512M",
		Of:     func(l *Limits) *int64 { return &l.MemoryBytes },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.MemoryBytes },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.MemoryBytes },
	},
	{
		Field: "milli_cpu", Name: "cpus", Key: "cpus", Controller: "cpu",
		Unit: CPUs, Min: 10, Max: MaxMilliCPU, // the kernel's least quota is 1 ms of each 100 ms
		Why: "thousandths of a CPU, the least that the kernel can grant", Example: "1 or 0.5", Default: 1000, Ceiling: 2000, Unisolated: true,
		Held:   "quota of each 100 ms",
		Flag:   "cpus",
		Usage:  "number `N` of CPUs, such as 1.5 (default: the profile's, else 1)",
		Update: "number `N` of CPUs, such as 1.5",
		Of:     func(l *Limits) *int64 { return &l.MilliCPU },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.MilliCpu },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.MilliCpu },
	},
	{
		Field: "cpu_shares", Name: "cpu shares", Key: "cpu_shares", Controller: "cpu",
		Unit: Count, Min: MinCPUShares, Max: MaxCPUShares,
		Why: "shares", Example: "1024", Zero: Unset, Default: DefaultCPUShares, Ceiling: DefaultCPUShares, Unisolated: true,
		Held:   "weight while CPUs are short",
		Flag:   "cpu-shares",
		Usage:  "CPU shares `N` (relative weight), 2 to 262144 (default: the profile's, else 1024)",
		Update: "CPU shares `N` (relative weight), 2 to 262144",
		Of:     func(l *Limits) *int64 { return &l.CPUShares },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.CpuShares },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.CpuShares },
	},
	{
		Field: "pids", Name: "pids", Key: "pids", Controller: "pids",
		Unit: Count, Min: 16, Max: 1 << 22, // the kernel's PID_MAX_LIMIT
		Why: "tasks, because the threads of PID 1 count", Example: "256", Default: 256, Ceiling: 1024, Kind: true, Unisolated: true,
		Held:   "processes and threads",
		Flag:   "pids",
		Usage:  "limit of `N` processes and threads, such as 1024 (default: the profile's, else 256)",
		Update: "limit of `N` processes and threads, such as 256",
		Of:     func(l *Limits) *int64 { return &l.PIDs },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.Pids },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.Pids },
	},
	{
		Field: "open_files", Name: "open files", Key: "open_files",
		Unit: Count, Min: 16, Max: 1 << 20, Example: "1024", Default: 1024, Ceiling: 4096, Kind: true, Unisolated: true,
		Held:  "of each process",
		Flag:  "open-files",
		Usage: "limit of `N` open files per process, such as 4096 (default: the profile's, else 1024)",
		Of:    func(l *Limits) *int64 { return &l.OpenFiles },
		Asked: func(l *caissonv1.Limits) **int64 { return &l.OpenFiles },
	},
	{
		Field: "tmpfs_bytes", Name: "tmpfs", Key: "tmpfs",
		Unit: Bytes, Min: 64 << 10, Max: 1 << 40, Example: "64M", Zero: Unset, Ceiling: 2 << 30,
		Held:  "of each tmpfs, and counted as memory",
		Flag:  "tmpfs",
		Usage: "`SIZE` of each tmpfs, such as 1G, for at most 100,000 files (default: the profile's, else half the memory)",
		Of:    func(l *Limits) *int64 { return &l.TmpfsBytes },
		Asked: func(l *caissonv1.Limits) **int64 { return &l.TmpfsBytes },
	},
	{
		Field: "io_read_bps", Name: "io read bps", Key: "io_read_bps", Controller: "io",
		Unit: Bytes, Min: 64 << 10, Max: 1 << 40, Why: "bytes per second (64K)", Example: "10M", Zero: Unbounded,
		Held:   "with each disk that has files of the sandbox",
		Flag:   "io-read-bps",
		Usage:  "read at most `RATE` bytes per second from each disk, such as 10M (default: the profile's, else unbounded)",
		Update: "read at most `RATE` bytes per second from each disk, such as 10M, or unbounded",
		Of:     func(l *Limits) *int64 { return &l.IOReadBPS },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.IoReadBps },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.IoReadBps },
	},
	{
		Field: "io_write_bps", Name: "io write bps", Key: "io_write_bps", Controller: "io",
		Unit: Bytes, Min: 64 << 10, Max: 1 << 40, Why: "bytes per second (64K)", Example: "10M", Zero: Unbounded,
		Held:   "with each disk that has files of the sandbox",
		Flag:   "io-write-bps",
		Usage:  "write at most `RATE` bytes per second to each disk, such as 10M (cgroup v2; default: the profile's, else unbounded)",
		Update: "write at most `RATE` bytes per second to each disk, such as 10M (cgroup v2), or unbounded",
		Of:     func(l *Limits) *int64 { return &l.IOWriteBPS },
		Asked:  func(l *caissonv1.Limits) **int64 { return &l.IoWriteBps },
		Change: func(r *caissonv1.UpdateRequest) **int64 { return &r.IoWriteBps },
	},
	{
		Field: "shm_bytes", Name: "shm", Key: "shm_size",
		Unit: Bytes, Min: 64 << 10, Max: 1 << 40, Example: "64M", Zero: Unset,
		Held:  "of /dev/shm, and counted as memory",
		Flag:  "shm-size",
		Usage: "`SIZE` of /dev/shm, such as 1G (default: the profile's, else that of each tmpfs)",
		Of:    func(l *Limits) *int64 { return &l.ShmBytes },
		Asked: func(l *caissonv1.Limits) **int64 { return &l.ShmBytes },
	},
	{
		Field: "disk_bytes", Name: "disk", Key: "disk",
		Unit: Bytes, Min: 16 << 20, Max: 1 << 40, Example: "2G", Zero: None, Ceiling: 10 << 30, Kind: true,
		Held:  "a file system of the sandbox's own, on the host's disk",
		Flag:  "disk",
		Usage: "`SIZE` of a disk of the sandbox's own, such as 2G, with /workspace (default: the profile's, else none)",
		Of:    func(l *Limits) *int64 { return &l.DiskBytes },
		Asked: func(l *caissonv1.Limits) **int64 { return &l.DiskBytes },
	},
	{
		Field: "disk_inodes", Name: "disk inodes", Key: "disk_inodes",
		Unit: Count, Min: 256, Max: 1 << 28, Example: "100000", Zero: None, Ceiling: 1 << 20, Kind: true,
		Held:  "files and directories on the disk",
		Flag:  "disk-inodes",
		Usage: "number `N` of files and directories that the disk can hold (default: the profile's, else one for each 16 KiB)",
		Of:    func(l *Limits) *int64 { return &l.DiskInodes },
		Asked: func(l *caissonv1.Limits) **int64 { return &l.DiskInodes },
	},
}

// Bounds that code beside the table needs. Those of CPU shares are the kernel's, of
// cpu.shares.
const (
	MaxMemoryBytes   = 1 << 46 // 64 TiB, all that x86-64 can address
	MaxMilliCPU      = 8192 * 1000
	MinCPUShares     = 2
	MaxCPUShares     = 1 << 18
	DefaultCPUShares = 1024
)

// DefaultOutputLimit is how many bytes of each stream of a command are kept, and are in an
// answer, if the request names no limit.
const DefaultOutputLimit = 10 << 20

// Row returns the limit of this field. It panics if there is none.
func Row(field string) *Limit {
	for i := range Table {
		if Table[i].Field == field {
			return &Table[i]
		}
	}
	panic("settings: no limit " + field)
}
