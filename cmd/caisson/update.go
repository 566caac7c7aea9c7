package main

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cgroups/units"
)

// updateFlags say what to change of a live sandbox.
type updateFlags struct {
	memory, cpus, shares, pids, ttl, idle, network string
	ioRead, ioWrite                                string
	labels, allow, deny                            []string
}

func (a *app) updateCommand() *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:               "update [flags] SANDBOX",
		Short:             "Change limits, labels and network policy of a sandbox",
		Example:           "  caisson update --ttl 2h -m 1G agent\n  caisson update --idle-timeout never -l team= agent\n  caisson update --allow github.com --allow pypi.org agent  # replaces\n  caisson update --allow '' agent                          # allows none",
		Args:              exactly("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := parser{flags: cmd.Flags()}
			req := f.request(&p)
			req.Ref = args[0]
			if cmd.Flags().NFlag() == 0 {
				p.refuse(usage("there is nothing to update: %s --help shows the flags", cmd.CommandPath()))
			}
			if err := p.end(req); err != nil {
				return err
			}
			return ask(cmd.Context(), a, (*api.Client).Update, req, a.printSandbox)
		},
	}
	f.register(cmd)
	a.outputFlags(cmd)
	return cmd
}

func (f *updateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE`, without swap, such as 512M")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs, such as 1.5")
	flags.StringVar(&f.shares, "cpu-shares", "", "CPU shares `N` (relative weight), 2 to 262144")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads, such as 256")
	flags.StringVar(&f.ioRead, "io-read-bps", "", "read at most `RATE` bytes per second from each disk, such as 10M, or unbounded")
	flags.StringVar(&f.ioWrite, "io-write-bps", "", "write at most `RATE` bytes per second to each disk, such as 10M (cgroup v2), or unbounded")
	flags.StringVar(&f.ttl, "ttl", "", "remove the sandbox `DURATION` from now, or never")
	flags.StringVar(&f.idle, "idle-timeout", "", "remove the sandbox when it is idle for `DURATION`, or never")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "set label `K=V`; K= removes it")
	registerNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.Lookup("network").Usage = "network `MODE`: allow or open"
}

func (f *updateFlags) request(p *parser) *caissonv1.UpdateRequest {
	p.notEmpty("network")
	req := &caissonv1.UpdateRequest{
		MemoryBytes: p.number("memory", f.memory, units.ParseSize),
		MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
		CpuShares:   p.number("cpu-shares", f.shares, parseCount),
		Pids:        p.number("pids", f.pids, parseCount),
		IoReadBps:   p.number("io-read-bps", f.ioRead, parseRate),
		IoWriteBps:  p.number("io-write-bps", f.ioWrite, parseRate),
		Ttl:         p.orNever("ttl", f.ttl),
		IdleTimeout: p.orNever("idle-timeout", f.idle),
		Labels:      p.labels(f.labels),
		Allow:       p.rules("allow", f.allow),
		Deny:        p.rules("deny", f.deny),
	}
	if p.flags.Changed("network") {
		req.Network = &f.network
	}
	return req
}

// parseRate is ParseSize where "unbounded" takes a rate away, which is zero.
func parseRate(text string) (int64, error) {
	if text == "unbounded" {
		return 0, nil
	}
	return units.ParseSize(text)
}

// rules reads a list of rules that may be absent, or empty on purpose: the one
// rule "" is none.
func (p *parser) rules(name string, list []string) *caissonv1.Rules {
	if !p.flags.Changed(name) {
		return nil
	}
	if len(list) == 1 && list[0] == "" {
		list = nil
	}
	return &caissonv1.Rules{Rules: list}
}

// orNever is duration where "never" may be said too, which is zero.
func (p *parser) orNever(name, text string) *durationpb.Duration {
	if p.flags.Changed(name) && text == never {
		return durationpb.New(0)
	}
	return p.durationOr(name, text, durationExamples+", or never")
}

// never is the word for no end: a zero is none.
const never = "never"
