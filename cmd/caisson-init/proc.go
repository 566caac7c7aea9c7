package main

import (
	"strconv"
	"syscall"
)

// countOthers counts the processes of the namespace that are neither this one,
// nor zombies, nor in the session of a command in live. -1: they cannot be
// counted. seen is how many there are in all.
func countOthers(live map[int]uint32) (count, seen int) {
	pids, err := processes()
	if err != nil {
		return -1, 0
	}
	for _, pid := range pids {
		if pid == syscall.Getpid() {
			continue
		}
		state, session, ok := readStat(pid)
		if !ok || state == 'Z' || state == 'X' {
			continue // ended since
		}
		if _, ok := live[session]; !ok {
			count++
		}
	}
	return count, len(pids)
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

func readStat(pid int) (state byte, session int, ok bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	defer syscall.Close(fd)
	var buf [512]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return 0, 0, false
	}
	return parseStat(buf[:n])
}

// parseStat reads the third and the sixth field of /proc/PID/stat. The second
// is the command's name, which a process chooses: it may hold spaces and
// parentheses, so the fields are counted from the last one (proc_pid_stat(5)).
func parseStat(stat []byte) (state byte, session int, ok bool) {
	end := len(stat) - 1
	for end >= 0 && stat[end] != ')' {
		end--
	}
	rest := stat[end+1:]
	if end < 0 || len(rest) < 3 || rest[0] != ' ' || rest[2] != ' ' {
		return 0, 0, false
	}
	state, rest = rest[1], rest[3:]
	var fields [3]int // ppid, pgrp, session
	for i := range fields {
		if fields[i], rest, ok = parseInt(rest); !ok {
			return 0, 0, false
		}
	}
	return state, fields[2], true
}

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
