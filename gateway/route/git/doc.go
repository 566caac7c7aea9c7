// Package git says what a route passes on of git's smart HTTP protocol: fetches and pushes of
// some repositories, and of pushes those that update some branches. It reads which refs a push
// would update, and writes the answer of a server that refuses them.
//
// It trusts no client: what it cannot read is refused, and what it reads is bounded.
package git
