package ctrd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// requiredPlugins make containerd refuse to start instead of serving without them.
var requiredPlugins = []string{
	"io.containerd.grpc.v1.containers",
	"io.containerd.grpc.v1.tasks",
	"io.containerd.snapshotter.v1.overlayfs",
}

// disabledPlugins is everything of containerd that caisson does not use: each is
// code that runs as root. Names that a build lacks are ignored by containerd.
var disabledPlugins = []string{
	// Acts on labels and annotations that somebody else may have written.
	"io.containerd.grpc.v1.cri",
	"io.containerd.cri.v1.images",
	"io.containerd.cri.v1.runtime",
	"io.containerd.monitor.container.v1.restart", // CVE-2026-53488
	"io.containerd.nri.v1.nri",
	// Runs programs of the host, or fetches from the network.
	"io.containerd.image-verifier.v1.bindir",
	"io.containerd.internal.v1.opt",
	"io.containerd.transfer.v1.local",
	"io.containerd.grpc.v1.transfer",
	"io.containerd.streaming.v1.manager",
	"io.containerd.grpc.v1.streaming",
	// Snapshotters and differs other than overlayfs.
	"io.containerd.differ.v1.erofs",
	"io.containerd.mount-handler.v1.erofs",
	"io.containerd.snapshotter.v1.blockfile",
	"io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper",
	"io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.native",
	"io.containerd.snapshotter.v1.zfs",
	// The daemon mounts root file systems itself; there is nothing to manage.
	"io.containerd.mount-manager.v1.bolt",
	"io.containerd.grpc.v1.mounts",
	// One task per container: no sandbox API.
	"io.containerd.sandbox.controller.v1.shim",
	"io.containerd.grpc.v1.sandbox-controllers",
	"io.containerd.sandbox.store.v1.local",
	"io.containerd.grpc.v1.sandboxes",
	// Further sockets, metrics and traces: the daemon has its own.
	"io.containerd.http.v1.pprof",
	"io.containerd.internal.v1.tracing",
	"io.containerd.metrics.v1.grpc-otel",
	"io.containerd.metrics.v1.grpc-prometheus",
	"io.containerd.monitor.task.v1.cgroups",
	"io.containerd.server.v1.debug",
	"io.containerd.server.v1.grpc-tcp",
	"io.containerd.server.v1.metrics",
	"io.containerd.tracing.processor.v1.otlp",
}

// shimPatience is how long a containerd that was started waits for each shim that it
// finds again. One that does not answer is taken for dead, and what it holds is killed:
// in the 5 s that are the default a busy host may let it wait. It ends before the
// patience with the server's own start does.
const shimPatience = startTimeout - 5*time.Second

// serverConfig renders the private containerd's configuration. It is pure: the
// paths are the only thing that differs between two daemons.
func serverConfig(p Paths) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written at each start of the daemon; changes are lost.")
	line("version = 3")
	line("root = %q", p.serverRoot())
	line("state = %q", p.serverState())
	line("temp = %q", p.serverRoot()+"/tmp") // unpacking must not fill the host's /tmp
	line("imports = []")                     // the default reads /etc/containerd/conf.d
	line("required_plugins = [%s]", quoted(requiredPlugins))
	line("disabled_plugins = [%s]", quoted(disabledPlugins))
	line("")
	line("[grpc]")
	line("  address = %q", p.Socket())
	line("")
	line("[debug]")
	line("  level = \"warn\"") // from debug on, each shim opens one more socket
	line("")
	line("[stream_processors]") // none: the default runs ctd-decoder from PATH
	line("")
	line("[timeouts]")
	line("  \"io.containerd.timeout.shim.load\" = \"%s\"", shimPatience)
	line("")
	line("[plugins.\"io.containerd.shim.v1.manager\"]")
	line("  socket_dir = %q", p.ShimSockets())
	line("  env = [%q]", shimcall.SocketsEnv+"="+p.ShimSockets())
	return b.String()
}

func quoted(names []string) string {
	names = slices.Clone(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("\n  %q", n)
	}
	return strings.Join(names, ",") + ",\n"
}
