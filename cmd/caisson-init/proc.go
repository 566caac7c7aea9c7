package main

import (
	"bytes"
	"strconv"
	"syscall"
)

// process is what /proc/PID/stat says of a process.
type process struct {
	pid     int
	state   byte
	parent  int
	session int
	threads int // 0: not known
}

// ended tells a zombie from a process of which only the first thread ended.
func (p process) ended() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// census is what countOthers finds.
type census struct {
	others  int // -1: they cannot be counted
	session int // of others, those in the session of the command
	seen    int // processes in all
}

// countOthers counts the processes of the namespace that are neither this one,
// nor zombies, nor in the session of a running command, for one that has ended
// and whose session was pid.
func (s *server) countOthers(pid int) census {
	var c census
	list, err := others()
	if err != nil {
		return census{others: -1}
	}
	c.seen = len(list)
	for _, p := range list {
		if _, ok := s.live[p.session]; ok {
			continue
		}
		c.others++
		if p.session == pid {
			c.session++
		}
	}
	return c
}

// others lists the processes of the namespace but this one and zombies.
func others() ([]process, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	list := make([]process, 0, len(pids))
	for _, pid := range pids {
		if pid == syscall.Getpid() {
			continue
		}
		if p, ok := readStat(pid); ok && !p.ended() {
			list = append(list, p)
		}
	}
	return list, nil
}

// processes lists /proc.
func processes() ([]int, error) {
	fd, err := syscall.Open("/proc", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	var pids []int
	buf := make([]byte, 4096)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return pids, err
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				pids = append(pids, pid)
			}
		}
	}
}

func readStat(pid int) (process, bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer syscall.Close(fd)
	var buf [512]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return process{}, false
	}
	p, ok := parseStat(buf[:n])
	p.pid = pid
	return p, ok
}

// parseStat reads the third, fourth, sixth and twentieth field of
// /proc/PID/stat. The second is the command's name, which a process chooses: it
// may hold spaces and parentheses, so the fields are counted from the last one
// (proc_pid_stat(5)).
func parseStat(stat []byte) (p process, ok bool) {
	end := len(stat) - 1
	for end >= 0 && stat[end] != ')' {
		end--
	}
	rest := stat[end+1:]
	if end < 0 || len(rest) < 3 || rest[0] != ' ' || rest[2] != ' ' {
		return process{}, false
	}
	p.state, rest = rest[1], rest[3:]
	var group int
	for _, field := range []*int{&p.parent, &group, &p.session} {
		if *field, rest, ok = parseInt(rest); !ok {
			return process{}, false
		}
	}
	for range 13 {
		_, rest, _ = bytes.Cut(rest, space)
	}
	p.threads, _, _ = parseInt(rest)
	return p, true
}

var space = []byte{' '}

// parseInt takes a decimal number and the space after it. It is here because
// this runs for each process of a full sandbox and should leave no garbage.
func parseInt(b []byte) (n int, rest []byte, ok bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	i := 0
	for i < len(digits) && i < 10 && '0' <= digits[i] && digits[i] <= '9' {
		n = 10*n + int(digits[i]-'0')
		i++
	}
	if i == 0 || i == len(digits) || digits[i] != ' ' {
		return 0, nil, false
	}
	if len(digits) < len(b) {
		n = -n
	}
	return n, digits[i+1:], true
}
