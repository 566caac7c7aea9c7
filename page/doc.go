// Package page serves a page for the browser: the sandboxes of the host, what they use and
// what they were refused. Its own code is in assets, and is a client of the API's plain
// HTTP. The handler lets through only the calls that the page makes, and only with the
// page's token.
package page
