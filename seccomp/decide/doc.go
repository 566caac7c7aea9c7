// Package decide finds out what seccomp programs decide, for every call at once.
//
// A program is classic BPF over struct seccomp_data (seccomp(2)). [Program] runs one on a
// [Call] of which only some bits are known. Where an unknown bit matters, the program
// names it, and [Compare] tries both of its values. So two deciders are compared for
// every architecture, call number and argument, and what is left out is proved to make no
// difference. No sample of values is needed.
//
// The package shares no code with the compiler of the filters: it imports neither
// libseccomp nor a BPF assembler. What it does not know, it refuses.
package decide
