package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// The ways to have the kernel hold memory for sockets that a filter can see.
var (
	recvErr4   = Value{unix.IP_RECVERR, "IP_RECVERR"}
	recvErr6   = Value{unix.IPV6_RECVERR, "IPV6_RECVERR"}
	stamping   = []Value{{unix.SO_TIMESTAMPING, "SO_TIMESTAMPING"}, {unix.SO_TIMESTAMPING_NEW, "SO_TIMESTAMPING_NEW"}}
	ipprotoIP  = Value{unix.IPPROTO_IP, "IPPROTO_IP"}
	ipprotoUDP = Value{unix.IPPROTO_UDP, "IPPROTO_UDP"}
)

// RefuseSocketMemory is p for hosts on which nobody can count what sockets hold: it
// refuses time stamps, corked datagrams and MSG_MORE, and has error queues stay off. Time
// stamps that a control message asks for cannot be seen by a filter; net.core.tstamp_allow_data
// keeps them small where the kernel has it for each namespace.
func (p Profile) RefuseSocketMemory() Profile {
	const why = "; not what holds memory that this host cannot count"
	rules := []Rule{}
	for _, r := range p.Rules {
		switch {
		case slices.Contains(r.Syscalls, "setsockopt"):
			rules = append(rules, refuseOptions(r, why)...)
		case slices.Contains(r.Syscalls, "sendto") && len(r.Args) == 0:
			rules = append(rules, refuseMore(r, why)...)
		default:
			rules = append(rules, r)
		}
	}
	for _, o := range []struct{ level, option Value }{{ipprotoIP, recvErr4}, {ipprotoIPv6, recvErr6}} {
		rules = append(rules, Rule{
			Syscalls: fields(`setsockopt`),
			Args: []Arg{
				{Index: 1, Name: "level", Mask: bits32, Values: []Value{o.level}},
				{Index: 2, Name: "option", Mask: bits32, Values: []Value{o.option}},
			},
			Pretend: true,
			Why:     "queues of errors, which hold memory that this host cannot count. The C library sets it for each lookup of a name and goes on without it, but not with an error",
		})
	}
	p.Rules = rules
	return p
}

// refuseOptions takes options out of a rule that allows all of a level but some.
func refuseOptions(r Rule, why string) []Rule {
	if !r.Allow {
		return []Rule{r}
	}
	if len(r.Args) == 1 { // all options of IPv4 and UDP
		ip, udp := r, r
		ip.Args, ip.Why = options(ipprotoIP, 0, recvErr4), r.Why+why
		udp.Args, udp.Why = options(ipprotoUDP, 0, Value{udpCork, "UDP_CORK"}), r.Why+why
		return []Rule{ip, udp}
	}
	also := map[string][]Value{solSocket.Name: stamping, ipprotoIPv6.Name: {recvErr6}}[r.Args[0].Values[0].Name]
	if len(also) == 0 {
		return []Rule{r}
	}
	r.Args = slices.Clone(r.Args)
	r.Args[1].Values = append(slices.Clone(r.Args[1].Values), also...)
	r.Why += why
	return []Rule{r}
}

// refuseMore takes MSG_MORE out of a rule that allows all of sending and receiving.
func refuseMore(r Rule, why string) []Rule {
	flags := map[string]uint{"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
	rest := r
	rest.Syscalls = slices.DeleteFunc(slices.Clone(r.Syscalls), func(name string) bool { return flags[name] != 0 })
	rules := []Rule{rest}
	for _, name := range r.Syscalls {
		if at := flags[name]; at != 0 {
			rules = append(rules, Rule{
				Syscalls: []string{name}, Allow: true, Why: r.Why + why,
				Args: []Arg{{Index: at, Name: "flags & MSG_MORE", Mask: unix.MSG_MORE, Values: []Value{zero}}},
			})
		}
	}
	return rules
}

const udpCork = 1 // linux/udp.h
