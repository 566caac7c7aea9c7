//go:build !amd64

package main

var machineCalls []call

// machineProbes: this architecture has one door to the kernel.
func machineProbes() []probe { return nil }
