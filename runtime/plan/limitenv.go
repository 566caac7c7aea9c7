package plan

import (
	"fmt"

	"github.com/caisson-run/caisson/rootfs/image"
)

// nodeHeap is the largest heap that Node plans by itself, in MiB.
const nodeHeap = 4096

// limitEnv tells language runtimes what bounds a command. There is no cgroup file system
// inside, where they would look: without these variables a JVM plans its heap by the
// memory of the host. The shares are those that each runtime takes by itself in a
// container with such a limit; Go takes none, and gets nine tenths.
func limitEnv(l Limits, exec ExecLimits) []string {
	memory, cpu := l.MemoryBytes, l.MilliCPU
	if exec.MemoryBytes != nil {
		memory = min(memory, *exec.MemoryBytes)
	}
	if exec.MilliCPU != nil {
		cpu = min(cpu, *exec.MilliCPU)
	}
	return []string{
		fmt.Sprintf("NODE_OPTIONS=--max-old-space-size=%d", max(min(memory>>20/2, nodeHeap), 1)),
		fmt.Sprintf("JDK_JAVA_OPTIONS=-XX:MaxRAM=%d -XX:ActiveProcessorCount=%d", memory, max((cpu+999)/1000, 1)),
		fmt.Sprintf("GOMEMLIMIT=%d", memory/10*9),
		fmt.Sprintf("DOTNET_GCHeapHardLimit=%x", memory/4*3),
	}
}

// withoutTracing is for AddressSanitizer: its leak check traces the program from a
// process that shares its descriptors. Only the profile debug allows either, and a check
// that fails makes each program end with 1.
const withoutTracing = "LSAN_OPTIONS=detect_leaks=0"

// env is the environment of a command where neither sandbox nor request says otherwise.
func (d Defaults) env(exec ExecLimits) []string {
	var env []string
	if d.Limits != (Limits{}) {
		env = limitEnv(d.Limits, exec)
	}
	if !d.Tracing {
		env = append(env, withoutTracing)
	}
	return image.MergeEnv(env, d.Env)
}
