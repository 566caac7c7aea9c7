package mcp

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// maxRefusals bounds the refused destinations that a result names.
const maxRefusals = 10

// refused says which destinations were refused while a command ran, and which rules would
// allow them.
func (s *Server) refused(ctx context.Context, c *command) (notes []string) {
	e := c.result.GetEgress()
	if c.result.GetNetwork() == "none" || c.result.GetExitCode() == 0 && e.GetRefused()+e.GetLookupsRefused() == 0 {
		return nil
	}
	enough := errors.New("enough")
	err := s.client.Traffic(ctx, &caissonv1.TrafficRequest{Ref: c.result.GetSandboxId()}, func(t *caissonv1.TrafficResponse) error {
		if t.GetVerdict() != "refused" || t.GetTime().AsTime().Before(c.began) {
			return nil
		}
		if note := s.refusal(ctx, c.result.GetSandboxId(), t); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
		if len(notes) == maxRefusals {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		notes = append(notes, "refusals of the network are not known: "+failure(err).Error())
	}
	return notes
}

func (s *Server) refusal(ctx context.Context, id string, t *caissonv1.TrafficResponse) string {
	target := t.GetName()
	if target == "" {
		target = t.GetAddress()
	}
	check := target
	if t.GetPort() != 0 {
		check = net.JoinHostPort(target, strconv.Itoa(int(t.GetPort())))
	}
	note := "the network refused " + check
	answer, err := s.client.CheckPolicy(ctx, &caissonv1.CheckPolicyRequest{Policy: &caissonv1.PolicyQuery{Ref: id}, Target: check})
	if needs := answer.GetNeeds(); err == nil && needs != "" {
		if t.GetPort() == 0 { // of a lookup: the usual ports
			needs = strings.TrimSuffix(needs, ":443")
		}
		note += "; the user can allow it with --allow " + needs
	}
	return note
}
