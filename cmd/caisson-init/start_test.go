package main

import (
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/initproto"
)

// What is kept for a daemon is bounded, and so are terminals.
func TestAdmit(t *testing.T) {
	s := &server{records: map[uint32]*record{}}
	for n := range uint32(initproto.MaxHeld - 1) {
		s.records[n+1] = &record{}
	}
	next := &request{Start: initproto.Start{Exec: initproto.MaxHeld}}
	if err := s.admit(next, nil); err != nil {
		t.Errorf("the last that there is room for: %+v", err)
	}
	again := &request{Start: initproto.Start{Exec: 1}}
	if err := s.admit(again, nil); err == nil || *err != (failure{initproto.StageRequest, syscall.EEXIST}) {
		t.Errorf("a number that is taken: %+v", err)
	}
	for range initproto.MaxTerminals {
		s.terms = append(s.terms, &terminal{})
	}
	if err := s.admit(next, nil); err != nil {
		t.Errorf("without a terminal: %+v", err)
	}
	next.Terminal = true
	if err := s.admit(next, nil); err == nil || *err != (failure{initproto.StageTerminal, syscall.ENOSPC}) {
		t.Errorf("one terminal too many: %+v", err)
	}
	next.Terminal = false
	s.records[initproto.MaxHeld] = &record{}
	next.Exec++
	if err := s.admit(next, nil); err == nil || *err != (failure{initproto.StageHold, syscall.ENOSPC}) {
		t.Errorf("one command too many: %+v", err)
	}
}
