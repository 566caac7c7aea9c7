// Package templates keeps the results of the set-ups of profiles.
//
// A template is an image of root's, under a name that has the profile and a digest of all that
// went into it. It is built when it is first needed. Those who need it meanwhile wait for the
// same build.
package templates
