// Package sockmem adds up the kernel memory that the sockets of each sandbox hold and
// that no cgroup is charged for.
//
// A list of dangerous options cannot bound it: control messages ask for time stamps too,
// and every error queue and every corked datagram holds memory. So all sockets of TCP and
// UDP are counted, whatever was done with them:
//
//	w, err := sockmem.Open(ctx, group, pins) // before the first sandbox: older sockets are not seen
//	held, sockets, err := w.Look(false)      // by cgroup, 20 to 40 times a second
//	worked, err := w.Worked()                // without work sockets hold no more than before
//	held, sockets, err = w.Look(true)        // as Look(false), and the next new socket ends Wait
//	err = w.Wait(ctx)                        // while there is no socket
//	err = w.Close()                          // sockets are tagged on
//	err = sockmem.Remove(pins)               // they are not
//
// # How it works
//
// One BPF program on the parent cgroup of all sandboxes tags each new socket with the ID
// of its sandbox's cgroup. A connection that a listener takes inherits the tag. A second
// program walks the kernel's lists of tags and adds up the memory of their sockets. The
// daemon runs it for each look: 4 µs, and 0.3 µs for each socket.
//
// The kernel has an iterator over such a map (bpf_sk_storage_map). Some kernels refuse it to
// root, though, and what is used here is not more: bpf_loop (Linux 5.17) and the kernel's
// types (CONFIG_DEBUG_INFO_BTF), by which the fields are found.
//
// Maps and programs are pinned in a bpffs. They outlive the daemon, so that the next one
// sees the sockets that were made meanwhile, and need not parse the kernel's types again.
//
// A kernel can take the programs and have them count nothing. So Open proves that they
// count: a child of the daemon holds memory in a cgroup of its own, and a look must find
// exactly the bytes of which its sockets tell.
//
// A sum can be wrong once: a socket may be freed while it is looked at. Whoever acts on one
// looks again first.
//
// # What is counted
//
//   - The receive memory of a socket with messages in its error queue, such as time
//     stamps. The kernel counts clones that share their data once each.
//   - The send memory of a UDP socket, corked or under way.
//   - TCP connections that nobody has accepted. The kernel charges them when that happens.
package sockmem
