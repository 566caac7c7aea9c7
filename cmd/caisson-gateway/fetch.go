package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fetchVerb as the first argument makes this program fetch files, in the sandbox of a build
// step: caisson-gateway fetch DIR URL… writes the files DIR/0, DIR/1 and so on.
const fetchVerb = "fetch"

// nobody is the user ID under which the answers of servers are parsed.
const nobody = 65534

// How long a server may take until its answer begins. The step has a time-out of its own.
const (
	dialTimeout   = 30 * time.Second
	answerTimeout = time.Minute
)

// fetch makes the files as the step's root, and gives up every right before it connects.
func fetch(dir string, urls []string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	var files []*os.File
	for n := range urls {
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Chown(nobody, nobody)
		}
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody)); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	client := http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: answerTimeout,
		DisableCompression:    true, // keeps the bytes that the server sends
		ForceAttemptHTTP2:     true,
	}}
	for n, f := range files {
		if err := errors.Join(fetchOne(&client, urls[n], f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fetchOne writes what is at from into f. Its time is that of Last-Modified, or 1970.
func fetchOne(client *http.Client, from string, f *os.File) error {
	request, err := http.NewRequest(http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "caisson/"+version)
	answer, err := client.Do(request)
	if of := new(url.Error); errors.As(err, &of) {
		return fmt.Errorf("%s: %w", of.URL, of.Err) // where it was redirected, the last one
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close() // it was only read
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("%s: the server answers %q", answer.Request.URL.Redacted(), answer.Status)
	}
	if _, err := io.Copy(f, answer.Body); err != nil {
		return fmt.Errorf("%s: %w", answer.Request.URL.Redacted(), err)
	}
	modified, err := http.ParseTime(answer.Header.Get("Last-Modified"))
	if err != nil {
		modified = time.Unix(0, 0)
	}
	at := unix.NsecToTimespec(modified.UnixNano())
	if err := unix.UtimesNanoAt(int(f.Fd()), "", []unix.Timespec{at, at}, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("set the time of a file: %w", err)
	}
	return nil
}
