// Package staging gives commands their input and counts the bytes of it that each has. The count
// stays exact if the daemon is killed at any moment.
//
// Input goes through a staging pipe, which PID 1 holds too. For each part the daemon
//
//  1. writes it to the staging pipe, which is empty,
//  2. records how many bytes it staged,
//  3. moves them to the command's pipe with splice(2), which takes them from one pipe and
//     puts them into the other in one step,
//  4. records that the command has them.
//
// A daemon that is killed before step 2 has given nothing to the command. After that, the
// staging pipe holds the bytes that the command does not have. The next daemon counts
// and drops them, and the caller sends them again.
package staging
