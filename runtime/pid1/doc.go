// Package pid1 is the daemon's side of the connection to caisson-init, PID 1
// of a sandbox: it starts commands there, signals them and learns their ends.
//
// Whoever controls the sandbox controls PID 1, so nothing that it says is
// believed further than it can be checked. A message that is malformed, out of
// order, unasked for or too late ends the connection with an error of code
// sbxerr.Init that matches ErrProtocol; the caller watches Client.Done and ends
// the sandbox. No descriptor is ever accepted from a sandbox. What remains is
// what PID 1 may say about itself: exit codes, resource usage and the pids of
// its own namespace are its claims, to be shown and never to be acted upon.
//
// Lifecycle: Listen before the task starts, Accept when its pid is known,
// Client.Start for each command, Exec.Wait, Client.Close. Closing, on purpose or
// because the daemon dies, ends the sandbox.
package pid1
