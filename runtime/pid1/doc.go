// Package pid1 is the daemon's side of the connection to caisson-init, PID 1
// of a sandbox: it starts commands there, signals them and learns their ends.
//
// Whoever controls the sandbox controls PID 1, so nothing that it says is
// believed further than it can be checked. A message that is malformed, out of
// order, unasked for or too late ends the connection with an error of code
// sbxerr.Init that matches ErrProtocol; the caller watches Client.Done and ends
// the sandbox. A descriptor is accepted from a sandbox only while a restarted
// daemon adopts it, only if it is the right end of a pipe, and even that is
// opened anew. What remains is what PID 1 may say about itself: exit codes,
// resource usage and the pids of its own namespace are its claims, to be shown
// and never to be acted upon; whoever places a process by such a pid checks first
// that it is one of this sandbox.
//
// Lifecycle: Listen before the task starts, or in its directory again after a
// restart; Accept when the task's pid is known, which also tells the commands
// that an earlier daemon started; Client.Start for each command, Exec.Wait,
// Exec.Release once its output and exit are safe; Client.Close. Closing, on
// purpose or because the daemon dies, starts the orphan grace.
package pid1
