package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Where nobody counts the memory of sockets, what holds it is refused. The C library's
// lookups of names go on.
func TestRefuseSocketMemory(t *testing.T) {
	const pretended = verdict("")
	for _, v := range variants() {
		v.Profile = v.RefuseSocketMemory()
		spec, err := v.Spec(v.Options)
		if err != nil {
			t.Errorf("%s: %v", v, err)
			continue
		}
		for _, tt := range []struct {
			name string
			args [6]uint64
			want verdict
		}{
			{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_TIMESTAMPING}, refused},
			{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_TIMESTAMPING_NEW}, refused},
			{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, allowed},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_UDP, udpCork}, refused},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_UDP, unix.UDP_SEGMENT}, allowed},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_IP, unix.IP_RECVERR}, pretended},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_IP, unix.IP_TTL}, allowed},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_IPV6, unix.IPV6_RECVERR}, pretended},
			{"setsockopt", [6]uint64{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, allowed},
			{"sendto", [6]uint64{3, 0, 0, unix.MSG_MORE | unix.MSG_DONTWAIT}, refused},
			{"sendmsg", [6]uint64{3, 0, unix.MSG_MORE}, refused},
			{"sendmmsg", [6]uint64{3, 0, 1, unix.MSG_MORE}, refused},
			{"sendmmsg", [6]uint64{3, 0, 2, unix.MSG_NOSIGNAL}, allowed}, // as a lookup of a name does
			{"sendto", [6]uint64{3, 0, 0, unix.MSG_NOSIGNAL}, allowed},
			{"recvmsg", [6]uint64{3, 0, unix.MSG_ERRQUEUE}, allowed},
		} {
			if got := decideOCI(t, entries(spec, tt.name), tt.args); got != tt.want {
				t.Errorf("%s: %s%v is %q, want %q", v, tt.name, tt.args, got, tt.want)
			}
		}
	}
}
