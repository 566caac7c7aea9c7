// Package seccomp holds the system call filters of a sandbox as plain data.
//
// A filter is an allow list: what no rule names is refused with EPERM, so a
// program gets an error that it can report instead of a signal. Three profiles
// exist, see [Lookup]: strict (the default), compat and debug. [Profile.Spec]
// renders one as the OCI form that runc applies; it is pure and needs no cgo.
// [CompileSpec] builds the same filter with libseccomp and exports it; the daemon
// compares filters in force with what [Expect] makes of that. [Profile.Compile] is
// stricter about names and is for tests. Only these need cgo.
//
// # What a filter does with a call
//
//   - Another architecture's entry (int $0x80, the x32 numbers): killed. Only the
//     native architecture is in the filter, and libseccomp's action for others is
//     SCMP_ACT_KILL.
//   - A rule that allows it, arguments included: passed to the kernel, which still
//     applies its own checks (no capability is held, no_new_privs is set).
//   - A rule that refuses it with a chosen error: that error. ENOSYS, for example,
//     makes a C library take its older path, where EPERM would make it give up.
//   - A number above the highest one that the filter names: ENOSYS. This is not in
//     the OCI form: runc puts such a check in front of the filter that it loads
//     (libcontainer/seccomp/patchbpf), so that a program that tries a call newer
//     than this table falls back as it would on an older kernel.
//   - Anything else: EPERM.
//
// A name that the installed libseccomp does not know is skipped by runc without a
// word. In an allow list that is fail-closed: the call stays refused. Rules marked
// Optional may meet that; for all others [Profile.Compile] makes it an error.
//
// # Comparing arguments
//
// Every condition is of one kind: some bits of one argument equal a value
// (SCMP_CMP_MASKED_EQ), and the mask covers exactly the bits that the kernel reads.
// A register has 64 bits and an int has 32: a filter that compares all 64 can be
// evaded with garbage in the upper half (CVE-2019-10063 was that, with TIOCSTI).
// "Any value but these" is rendered as the set of masked values that covers all the
// others, see cover. The two obvious ways to say it do not work: libseccomp drops
// conditional refusals when the same call is also allowed without a condition, and
// runc turns two conditions on one argument into alternatives, of which one always
// holds. Profile.check refuses data that would lead there.
//
// # What programs notice
//
// Compilers, debug builds, tests and servers of C, C++, Go, Rust, Python, Node and
// Java run under strict, and so do git and PostgreSQL. What does not:
//
//   - Tracing: gdb, strace, delve and the leak check that -fsanitize=address makes at
//     the end of a program. The profile debug allows it; ASAN_OPTIONS=detect_leaks=0
//     does without. Address randomization stays on in gdb.
//   - Set-id bits: chmod u+s and g+s, also on directories. compat allows them.
//   - Netlink other than route queries: EPERM, so ss(8) and nft(8) fail; ss goes on with
//     /proc/net. The audit log's protocol is unknown (EPROTONOSUPPORT).
//   - Filters of a program's own (seccomp, libseccomp): EINVAL, as from a kernel
//     without filters. man, sshd, Chromium and Firefox go on; compat allows filters.
//   - Locks of open file descriptions (F_OFD_GETLK, F_OFD_SETLK): EINVAL, as from Linux before 3.15.
//   - io_uring and native AIO: programs fall back. compat allows native AIO.
//   - Containers inside: no namespaces, no mounts. No profile allows them.
//
// # Adding a system call
//
// Say a program needs "frobnicate" and gets EPERM.
//
//  1. Read its entry in denied.go: somebody wrote down why it is refused. If the
//     reason still holds, the answer is another way to do it, or a narrower rule.
//  2. Take the entry out of denied.go and put the name into a rule in the file of
//     its topic, with a Why that says who needs it and why it is safe here. Mark
//     the rule Arch if only one architecture has it, Optional if it is newer than
//     Linux 5.17.
//  3. If only some of its arguments are safe, give the rule Args. Values that a
//     pointer leads to cannot be seen by a filter.
//  4. go test ./seccomp -update and read the diff of testdata: it shows every
//     profile and architecture that changed. Nothing else may have changed.
package seccomp
