// Package posture compares a live process with the specification that was
// declared for it. Runtimes have been made to write their labels, sysctls and
// mounts somewhere else than they were told (CVE-2019-16884, CVE-2021-30465,
// CVE-2025-31133, CVE-2025-52881); what the kernel shows of the process
// afterwards is the only proof that a sandbox is what was asked for.
//
// Everything is read from the host's side, from /proc/<pid>; nothing that the
// sandbox says is believed. Cgroup values are not read here: see
// cgroups.Group.Verify.
package posture
