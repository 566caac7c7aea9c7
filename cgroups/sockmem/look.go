package sockmem

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// maxSteps bounds a look: one step for each socket and each bucket.
const maxSteps = 1 << 23 // the most that bpf_loop takes

// The memory that the steps of a look share.
const (
	walkNode   = 0  // the next element of the list
	walkBucket = 8  // where the next list begins
	walkLeft   = 16 // lists
	walkSize   = 24
)

// lookProgram walks the kernel's lists of tags and adds up what the sockets hold. It is
// run by the daemon and attached to nothing. The kernel runs it under RCU, as it does its
// own iterator over such a map, which some hosts refuse.
func lookProgram(m maps, o offsets) *ebpf.ProgramSpec {
	word := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	pointer := &btf.Pointer{Target: &btf.Void{}}
	main := &btf.Func{Name: "caisson_look", Linkage: btf.GlobalFunc, Type: &btf.FuncProto{Return: word, Params: []btf.FuncParam{{Name: "ctx", Type: pointer}}}}
	step := &btf.Func{Name: "caisson_step", Linkage: btf.StaticFunc, Type: &btf.FuncProto{
		Return: word, Params: []btf.FuncParam{{Name: "n", Type: word}, {Name: "walk", Type: pointer}},
	}}
	begin, next := lookMain(m, o), lookStep(m, o)
	begin[0] = btf.WithFuncMetadata(begin[0].WithSymbol("caisson_look"), main)
	next[0] = btf.WithFuncMetadata(next[0].WithSymbol("caisson_step"), step)
	return &ebpf.ProgramSpec{Name: "caisson_look", Type: ebpf.RawTracepoint, Instructions: append(begin, next...), License: "GPL"}
}

// lookMain begins with the first list, and walks on from there.
//
// Before Linux 6.8 the verifier follows one step of a loop only. It would take a number
// that it knows then for the one of every step, and remove code that a later step needs.
// So it must know none: the element to begin with is read from the first list here.
func lookMain(m maps, o offsets) asm.Instructions {
	const walk = atRead - walkSize
	ins := asm.Instructions{
		mapPointer(asm.R6, m.tags),
		asm.LoadMem(asm.R7, asm.R6, o.buckets, asm.DWord), asm.LoadMem(asm.R8, asm.R6, o.bucketLog, asm.Word),
	}
	ins = append(ins, lookupState(m, "end")...)
	ins = append(ins,
		// By way of the map the pointer becomes a number, with which one may compute.
		asm.Mov.Reg(asm.R9, asm.R0), asm.StoreMem(asm.R9, stateBuckets, asm.R7, asm.DWord), asm.LoadMem(asm.R7, asm.R9, stateBuckets, asm.DWord),
		storeImm(asm.R9, stateCut, 1), // until the walk is over
		asm.Mov.Imm(asm.R1, 1), asm.LSh.Reg(asm.R1, asm.R8), asm.Add.Imm(asm.R1, -1),
		asm.StoreMem(asm.R10, walk+walkLeft, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, o.bucketSize),
		asm.StoreMem(asm.R10, walk+walkBucket, asm.R1, asm.DWord))
	ins = append(ins, readAt(asm.R7, o.bucketList, 8, "end")...)
	return append(ins,
		asm.StoreMem(asm.R10, walk+walkNode, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, maxSteps),
		asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference("caisson_step"),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, walk), asm.Mov.Imm(asm.R4, 0), asm.FnLoop.Call(),
		asm.LoadMem(asm.R1, asm.R10, walk+walkNode, asm.DWord), asm.JNE.Imm(asm.R1, 0, "end"),
		asm.LoadMem(asm.R1, asm.R10, walk+walkLeft, asm.DWord), asm.JNE.Imm(asm.R1, 0, "end"),
		storeImm(asm.R9, stateCut, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
}

// What the programs keep on their stacks, below the key of the state.
const (
	atRead = -16 // what was read last
	atID   = -24
	atSum  = -24 - sumSize
)

// lookStep goes on to the next list, or adds up one socket. R6 is the walk, R7 the
// element, R8 the socket.
func lookStep(m maps, o offsets) asm.Instructions {
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.LoadMem(asm.R7, asm.R6, walkNode, asm.DWord), asm.JNE.Imm(asm.R7, 0, "element"),
		asm.LoadMem(asm.R1, asm.R6, walkLeft, asm.DWord), asm.JEq.Imm(asm.R1, 0, "stop"),
		asm.Add.Imm(asm.R1, -1), asm.StoreMem(asm.R6, walkLeft, asm.R1, asm.DWord),
		asm.LoadMem(asm.R7, asm.R6, walkBucket, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, o.bucketSize), asm.StoreMem(asm.R6, walkBucket, asm.R1, asm.DWord),
	}
	ins = append(ins, readAt(asm.R7, o.bucketList, 8, "stop")...)
	ins = append(ins, asm.StoreMem(asm.R6, walkNode, asm.R1, asm.DWord), asm.Ja.Label("go on"))

	element := readAt(asm.R7, 0, 8, "stop") // the next one
	element[0] = element[0].WithSymbol("element")
	ins = append(ins, element...)
	ins = append(ins, asm.StoreMem(asm.R6, walkNode, asm.R1, asm.DWord), asm.Add.Imm(asm.R7, -o.node))
	ins = append(ins, readAt(asm.R7, o.tag, 8, "go on")...)
	ins = append(ins, asm.StoreMem(asm.R10, atID, asm.R1, asm.DWord))
	ins = append(ins, readAt(asm.R7, o.storage, 8, "go on")...)
	ins = append(ins, asm.JEq.Imm(asm.R1, 0, "go on"), asm.Mov.Reg(asm.R8, asm.R1))
	ins = append(ins, readAt(asm.R8, o.owner, 8, "go on")...)
	ins = append(ins, asm.JEq.Imm(asm.R1, 0, "go on"), asm.Mov.Reg(asm.R8, asm.R1))
	ins = append(ins, o.held()...)
	ins = append(ins, addUp(m)...)
	return append(ins,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("go on"), asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("stop"), asm.Return())
}

// readAt leaves in R1 the number of some bytes at an offset from the address in base, or
// jumps where there is none.
func readAt(base asm.Register, offset int32, size int32, none string) asm.Instructions {
	return asm.Instructions{
		storeImm(asm.R10, atRead, 0),
		asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, atRead), asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, base), asm.Add.Imm(asm.R3, offset), asm.FnProbeReadKernel.Call(),
		asm.JNE.Imm(asm.R0, 0, none),
		asm.LoadMem(asm.R1, asm.R10, atRead, asm.DWord),
	}
}

// held leaves in R7 what the socket in R8 holds that is charged to nobody, and in R9 its
// memory as a whole. All fields are little: no machine that is supported keeps the high
// bytes of a number first.
func (o offsets) held() asm.Instructions {
	var ins asm.Instructions
	read := func(offset, size int32, then ...asm.Instruction) {
		ins = append(append(ins, readAt(asm.R8, offset, size, "go on")...), then...)
	}
	labelled := func(label string, offset, size int32, then ...asm.Instruction) {
		at := len(ins)
		read(offset, size, then...)
		ins[at] = ins[at].WithSymbol(label)
	}
	ins = append(ins, asm.Mov.Imm(asm.R7, 0))
	read(o.receive, 4, asm.Mov.Reg(asm.R9, asm.R1))
	read(o.errors, 4, asm.JEq.Imm(asm.R1, 0, "no errors"), asm.Mov.Reg(asm.R7, asm.R9))
	labelled("no errors", o.protocol, 2, asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, "tcp"))
	read(o.send, 4, asm.Add.Reg(asm.R7, asm.R1), asm.Add.Reg(asm.R9, asm.R1), asm.Ja.Label("forward"))
	labelled("tcp", o.socket, 8, asm.JNE.Imm(asm.R1, 0, "queued")) // it has a descriptor
	read(o.state, 1, asm.JEq.Imm(asm.R1, tcpEstablished, "unaccepted"), asm.JNE.Imm(asm.R1, tcpCloseWait, "queued"))
	ins = append(ins, asm.Mov.Reg(asm.R7, asm.R9).WithSymbol("unaccepted"), asm.Add.Imm(asm.R7, unacceptedSize), asm.Add.Imm(asm.R9, unacceptedSize))
	labelled("queued", o.queued, 4, asm.Add.Reg(asm.R9, asm.R1))
	// What a socket was granted and has not used; it can be negative for a moment.
	labelled("forward", o.forward, 4, asm.LSh.Imm(asm.R1, 32), asm.ArSh.Imm(asm.R1, 32), asm.JSLE.Imm(asm.R1, 0, "sum"), asm.Add.Reg(asm.R9, asm.R1))
	return ins
}

// addUp counts the socket, and adds R7 and R9 to the sum of its cgroup.
func addUp(m maps) asm.Instructions {
	look := lookupState(m, "go on")
	look[0] = look[0].WithSymbol("sum")
	ins := append(look,
		asm.Mov.Imm(asm.R1, 1), add(asm.R0, stateSockets, asm.R1), add(asm.R0, stateTotal, asm.R9),
		asm.JGT.Imm(asm.R9, 1, "busy"), // an idle socket's send memory is 1
		asm.Mov.Imm(asm.R7, 0), asm.Mov.Imm(asm.R9, 0),
		asm.Mov.Reg(asm.R6, asm.R0).WithSymbol("busy"), asm.LoadMem(asm.R8, asm.R6, stateLook, asm.DWord))
	ins = append(ins, lookupSum(m)...)
	ins = append(ins, asm.JNE.Imm(asm.R0, 0, "there"),
		storeImm(asm.R10, atSum+sumLook, 0), storeImm(asm.R10, atSum+sumUncharged, 0), storeImm(asm.R10, atSum+sumTotal, 0), storeImm(asm.R10, atSum+sumSockets, 0),
		mapPointer(asm.R1, m.sums), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, atID),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, atSum), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
	ins = append(ins, lookupSum(m)...)
	return append(ins, asm.JNE.Imm(asm.R0, 0, "there"),
		asm.Mov.Imm(asm.R1, 1), add(asm.R6, stateLost, asm.R1), asm.Ja.Label("go on"),
		asm.LoadMem(asm.R1, asm.R0, sumLook, asm.DWord).WithSymbol("there"), asm.JEq.Reg(asm.R1, asm.R8, "same"),
		asm.StoreMem(asm.R0, sumLook, asm.R8, asm.DWord), // the number of the look replaces setting all to 0
		storeImm(asm.R0, sumUncharged, 0), storeImm(asm.R0, sumTotal, 0), storeImm(asm.R0, sumSockets, 0),
		add(asm.R0, sumUncharged, asm.R7).WithSymbol("same"), add(asm.R0, sumTotal, asm.R9),
		asm.Mov.Imm(asm.R1, 1), add(asm.R0, sumSockets, asm.R1))
}

func lookupSum(m maps) asm.Instructions {
	return asm.Instructions{
		mapPointer(asm.R1, m.sums), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, atID), asm.FnMapLookupElem.Call(),
	}
}
