// Package events is the one stream of what happens on the host: sandboxes and commands
// with their results, limits that were hit, attempts to connect, files, images, refused
// calls, the engine, the configuration and the daemon itself.
//
// Whoever causes an event emits it. Before anybody can see it, the Bus hands its JSON to
// the Recorder: the audit log is the durable form of the stream. Observers count it for
// metrics. Readers follow it from any place that is still kept. They are told how many
// events they missed, and hold up neither the writers nor each other.
//
// On the wire an event has the form of CloudEvents 1.0.
package events
