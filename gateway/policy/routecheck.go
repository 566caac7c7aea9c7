package policy

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
)

func (r *Routed) checkCA() error {
	if r.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(r.CA)) {
		return errors.New("its ca holds no certificate in the form PEM")
	}
	return nil
}

// checkClient checks the certificate that the upstream is shown.
func (r *Routed) checkClient() error {
	switch {
	case r.ClientCert == "" && r.ClientKey == "":
		return nil
	case r.ClientCert == "" || r.ClientKey == "":
		return errors.New("it has one of client_cert and client_key, which belong together")
	case r.Base.Scheme != "https":
		return errors.New("its upstream is reached without TLS, where nobody is shown a client_cert")
	}
	block, _ := pem.Decode([]byte(r.ClientCert))
	if block == nil || block.Type != "CERTIFICATE" {
		return errors.New("its client_cert holds no certificate in the form PEM")
	}
	return nil
}

func (r *Routed) checkStrip() error {
	if len(r.Strip) > maxRoutes {
		return fmt.Errorf("it strips more than %d headers", maxRoutes)
	}
	for _, name := range r.Strip {
		if !token(name) || slices.Contains(reservedHeaders, strings.ToLower(name)) {
			return fmt.Errorf("%q is no header that a request can do without", sbxerr.Clip(name))
		}
	}
	return nil
}

// reservedHeaders steer the connection or the request itself, so no credential is put there.
var reservedHeaders = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive", "accept-encoding"}

func (r *Routed) checkPlacement() error {
	if r.Credential == "" && (r.Placement != "" || r.Parameter != "") {
		return errors.New("it says how to place a credential, but names none")
	}
	if r.Placement == "" {
		r.Placement = Bearer
	}
	switch r.Placement {
	case Bearer:
		if r.Parameter != "" {
			return errors.New("the placement bearer takes no name of a parameter")
		}
	case Basic:
		if r.Parameter == "" || strings.ContainsFunc(r.Parameter, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' }) {
			return fmt.Errorf("the placement basic needs a user of printable ASCII without a colon, not %q", sbxerr.Clip(r.Parameter))
		}
	case Header, Query:
		if !token(r.Parameter) {
			return fmt.Errorf("the placement %s needs the name of the %s, not %q", r.Placement, r.Placement, sbxerr.Clip(r.Parameter))
		}
		if r.Placement == Header && slices.Contains(reservedHeaders, strings.ToLower(r.Parameter)) {
			return fmt.Errorf("the header %q cannot hold a credential", r.Parameter)
		}
	default:
		return fmt.Errorf("the placement %q is none of %s, %s, %s and %s", sbxerr.Clip(string(r.Placement)), Bearer, Basic, Header, Query)
	}
	return nil
}

// token reports whether s is a token of RFC 9110.
func token(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

func (r *Routed) parseScope() error {
	if r.Git != nil {
		return r.checkGit()
	}
	if len(r.Methods) > maxRoutes || len(r.Paths) > maxRoutes {
		return fmt.Errorf("it has more than %d methods or paths", maxRoutes)
	}
	if err := checkMethods(r.Methods); err != nil {
		return err
	}
	for _, text := range r.Paths {
		p, err := parsePattern(text)
		if err != nil {
			return fmt.Errorf("the path %q %w", sbxerr.Clip(text), err)
		}
		r.paths = append(r.paths, p)
	}
	return nil
}

func (r *Routed) checkGit() error {
	if len(r.Methods)+len(r.Paths) > 0 {
		return errors.New("a route for git has repositories and access in place of methods and paths")
	}
	return r.Git.Check()
}

// checkBudget refuses what could not be counted.
func (r *Routed) checkBudget() error {
	if len(r.Prices) > maxRoutes {
		return fmt.Errorf("it has prices of more than %d models", maxRoutes)
	}
	for scope, limit := range r.Budget {
		switch {
		case !slices.Contains(budget.Scopes, scope):
			return fmt.Errorf("its budget has the scope %q, which is none of sandbox, session and hour", sbxerr.Clip(string(scope)))
		case limit == budget.Limit{}:
			return fmt.Errorf("its budget for each %s limits nothing", scope)
		case (limit.Tokens > 0 || limit.Micros > 0) && !r.Tokens:
			return fmt.Errorf("its budget for each %s limits tokens or cost, which are known of a model's API alone: give it the preset openai or anthropic", scope)
		case limit.Micros > 0 && len(r.Prices) == 0:
			return fmt.Errorf("its budget for each %s limits the cost, and there are no prices", scope)
		}
	}
	return nil
}
