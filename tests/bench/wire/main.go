// Command wire is both ends of the measurements of the network: a server, and a
// client that says what it took, in JSON.
//
//	wire serve ADDRESS              echoes on PORT, sends without end on PORT+1
//	wire connect ADDRESS N          N connections, one after the other, of one byte and back
//	wire pull ADDRESS BYTES         reads so many from the port after that of ADDRESS
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

func main() {
	verbs := map[string]func([]string) error{"serve": serve, "connect": connect, "pull": pull}
	if len(os.Args) < 3 || verbs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: wire serve|connect|pull ADDRESS [N]")
		os.Exit(2)
	}
	if err := verbs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// next is the address with the port after it.
func next(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(n+1)), err
}

func serve(args []string) error {
	endless, err := next(args[0])
	if err != nil {
		return err
	}
	echoes, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	sends, err := net.Listen("tcp", endless)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	failed := make(chan error, 2)
	go func() { failed <- each(echoes, func(c net.Conn) { _, _ = io.Copy(c, c) }) }()
	go func() { failed <- each(sends, flood) }()
	return <-failed
}

func each(l net.Listener, do func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			do(c)
			_ = c.Close()
		}()
	}
}

func flood(c net.Conn) {
	buf := make([]byte, 256<<10)
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

func argument(args []string) (int, error) {
	if len(args) < 2 {
		return 0, errors.New("a number is missing")
	}
	return strconv.Atoi(args[1])
}

// connect resolves once: what a connection costs is measured, not what a name does.
func connect(args []string) error {
	n, err := argument(args)
	if err != nil {
		return err
	}
	to, err := net.ResolveTCPAddr("tcp4", args[0])
	if err != nil {
		return err
	}
	took := make([]time.Duration, 0, n)
	for range n {
		begin := time.Now()
		if err := once(to); err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

func once(to *net.TCPAddr) error {
	c, err := net.DialTCP("tcp4", nil, to)
	if err != nil {
		return err
	}
	defer c.Close()
	b := []byte{1}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = io.ReadFull(c, b)
	return err
}

func pull(args []string) error {
	n, err := argument(args)
	if err != nil {
		return err
	}
	address, err := next(args[0])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp4", address)
	if err != nil {
		return err
	}
	defer c.Close()
	begin := time.Now()
	buf := make([]byte, 256<<10)
	for left := n; left > 0; {
		got, err := c.Read(buf[:min(len(buf), left)])
		if err != nil {
			return err
		}
		left -= got
	}
	return json.NewEncoder(os.Stdout).Encode([]time.Duration{time.Since(begin)})
}
