package sockmem

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// The value of the state map. The programs use its fields by offset.
type state struct {
	Look    uint64 // number of the current look
	Sockets uint64 // that it saw
	Total   uint64 // bytes that they hold, charged or not
	Lost    uint64 // sockets for whose cgroup the map of sums has no room
	Buckets uint64 // where the kernel keeps the lists of tags
	Asleep  uint64 // 1: the next new socket is to wake the daemon
	Cut     uint64 // 1: the look ended before it had seen all sockets
}

const (
	stateLook    = 0
	stateSockets = 8
	stateTotal   = 16
	stateLost    = 24
	stateBuckets = 32
	stateAsleep  = 40
	stateCut     = 48
	stateSize    = 56
)

// The value of the map of sums, by cgroup.
type sum struct {
	Look      uint64 // the last one that saw a socket of the cgroup
	Uncharged uint64
	Total     uint64
	Sockets   uint64
}

const (
	sumLook      = 0
	sumUncharged = 8
	sumTotal     = 16
	sumSockets   = 24
	sumSize      = 32
	maxSums      = 8192
)

// maxLevel bounds how deep the parent cgroup can lie. A process in a cgroup namespace does
// not know its true level, so the program looks for it.
const maxLevel = 16

// unacceptedSize is about what a TCP connection takes without the bytes that it received.
const unacceptedSize = 4 << 10

// Of linux/bpf.h, include/net/tcp_states.h and linux/in.h.
const (
	storageCreate   = 1    // BPF_SK_STORAGE_GET_F_CREATE
	forceWakeup     = 2    // BPF_RB_FORCE_WAKEUP
	atomicExchange  = 0xe1 // BPF_XCHG
	tcpEstablished  = 1
	tcpCloseWait    = 8
	errorPermission = 0 // of a sock_create program: EPERM
	goOn            = 1
)

type maps struct{ tags, state, sums, wake *ebpf.Map }

func (m *maps) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{pinTags: &m.tags, pinState: &m.state, pinSums: &m.sums, pinWake: &m.wake}
}

// mapSpecs are by the names under which the maps are pinned.
func mapSpecs() map[string]*ebpf.MapSpec {
	return map[string]*ebpf.MapSpec{
		pinTags: {
			Name: "caisson_tags", Type: ebpf.SkStorage, KeySize: 4, ValueSize: 8, Flags: unix.BPF_F_NO_PREALLOC | unix.BPF_F_CLONE,
			Key: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Value: &btf.Int{Name: "u64", Size: 8},
		},
		pinState: {Name: "caisson_state", Type: ebpf.Array, KeySize: 4, ValueSize: stateSize, MaxEntries: 1},
		pinSums:  {Name: "caisson_sums", Type: ebpf.Hash, KeySize: 8, ValueSize: sumSize, MaxEntries: maxSums},
		pinWake:  {Name: "caisson_wake", Type: ebpf.RingBuf, MaxEntries: uint32(unix.Getpagesize())},
	}
}

// createProgram tags a new socket with the ID of the cgroup below parent, and wakes the
// daemon if it sleeps. A socket that cannot be tagged is refused.
func createProgram(m maps, parent uint64) *ebpf.ProgramSpec {
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	ins = append(ins, ancestorBelow(parent)...)
	ins = append(ins,
		mapPointer(asm.R1, m.tags).WithSymbol("tag"), asm.Mov.Reg(asm.R2, asm.R6), asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, storageCreate), asm.FnSkStorageGet.Call(),
		asm.JEq.Imm(asm.R0, 0, "refuse"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord))
	ins = append(ins, lookupState(m, "allow")...)
	ins = append(ins,
		// The exchange is a full barrier: either this sees that the daemon sleeps, or the
		// daemon's last look before it slept sees the tag.
		asm.Mov.Imm(asm.R1, 0), exchange(asm.R0, stateAsleep, asm.R1), asm.JEq.Imm(asm.R1, 0, "allow"),
		storeImm(asm.R10, -8, 0),
		mapPointer(asm.R1, m.wake), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -8), asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, forceWakeup), asm.FnRingbufOutput.Call(),
		asm.Mov.Imm(asm.R0, goOn).WithSymbol("allow"), asm.Return(),
		asm.Mov.Imm(asm.R0, errorPermission).WithSymbol("refuse"), asm.Return())
	return &ebpf.ProgramSpec{Name: "caisson_create", Type: ebpf.CGroupSock, AttachType: ebpf.AttachCGroupInetSockCreate, Instructions: ins, License: "GPL"}
}

// ancestorBelow leaves in R7 the ID of the cgroup right below parent that the calling
// process is in, 0 where it is in none.
func ancestorBelow(parent uint64) asm.Instructions {
	ins := asm.Instructions{asm.Mov.Imm(asm.R7, 0), asm.LoadImm(asm.R8, int64(parent), asm.DWord)}
	for level := range int32(maxLevel) {
		next := "level" + string(rune('a'+level))
		ins = append(ins,
			asm.Mov.Imm(asm.R1, level), asm.FnGetCurrentAncestorCgroupId.Call(),
			asm.JEq.Imm(asm.R0, 0, "tag"), // deeper than the process
			asm.JNE.Reg(asm.R0, asm.R8, next),
			asm.Mov.Imm(asm.R1, level+1), asm.FnGetCurrentAncestorCgroupId.Call(), asm.Mov.Reg(asm.R7, asm.R0), asm.Ja.Label("tag"),
			asm.Mov.Imm(asm.R1, 0).WithSymbol(next))
	}
	return ins
}

// lookupState leaves in R0 where the state is, or jumps.
func lookupState(m maps, missing string) asm.Instructions {
	return asm.Instructions{
		storeImm(asm.R10, -8, 0),
		mapPointer(asm.R1, m.state), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -8), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, missing),
	}
}

// mapPointer loads where a map is. Programs without maps are for revision alone.
func mapPointer(to asm.Register, m *ebpf.Map) asm.Instruction {
	if m == nil {
		return asm.LoadMapPtr(to, 0)
	}
	return asm.LoadMapPtr(to, m.FD())
}

// storeImm stores a number of eight bytes. The kernel takes it, and extends its sign. The
// library's own function refuses it.
func storeImm(dst asm.Register, at int16, value int64) asm.Instruction {
	return asm.Instruction{OpCode: asm.StoreImmOp(asm.DWord), Dst: dst, Offset: at, Constant: value}
}

// exchange writes the number of the operation itself: the library encodes its own Xchg as
// an addition (v0.22.0).
func exchange(dst asm.Register, at int16, src asm.Register) asm.Instruction {
	i := asm.StoreXAdd(dst, src, asm.DWord)
	i.Offset, i.Constant = at, atomicExchange
	return i
}

func add(dst asm.Register, at int16, src asm.Register) asm.Instruction {
	i := asm.StoreXAdd(dst, src, asm.DWord)
	i.Offset = at
	return i
}
