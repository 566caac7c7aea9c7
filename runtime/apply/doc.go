// Package apply writes the changes of a copy-on-write workspace into the directory of the host.
//
// It goes in steps. Look finds out what both layers have under the names that changed, Plan
// decides, without a look at anything else, what is to be done, and Apply does it: all new
// files are made in a directory of their own beside their place, a journal says so, and then
// names are moved, one at a time. An apply that was killed before the journal says so is
// undone by Finish, one that was killed later is finished.
//
// The host's directory is written to by a thread with its owner's rights and no other.
// No link and no mount is followed.
package apply
