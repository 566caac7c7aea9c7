// Package imageproc starts caisson-images, the unprivileged program that parses what images are
// made of and compares files of workspaces, and carries the messages between it and the daemon.
//
// Each piece of work has a process of its own. It begins with a request and ends with the
// process, so nothing of one caller is there when the work of another begins. The process owns
// no file, is in no group, has no capability and cannot get one, no other process is in its
// pid namespace, and its network namespace is empty. Before it reads the request it gives up, by a
// filter of system calls, to open files, to make sockets and to run programs. Only what collects
// software of the host needs its files and programs, and keeps that.
//
// A file or a socket that it needs later it asks for, by an Asker. The daemon opens or connects it,
// and passes it: what may be opened is decided there.
//
// Its memory is bounded by RLIMIT_DATA, which the kernel enforces on any host, at no cost for a
// process of some milliseconds. A memory cgroup would have to be made and removed for each.
//
// What it sends is not trusted. The reader of a message says how long it may be, and checks what
// it says.
package imageproc
