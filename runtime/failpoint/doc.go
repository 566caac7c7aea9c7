// Package failpoint lets a daemon that is built for tests fail at named points of its work.
package failpoint
