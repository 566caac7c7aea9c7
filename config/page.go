package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
)

// Page says where the page for the browser is served.
type Page struct {
	Listen    string `yaml:"listen" json:"listen" jsonschema:"description=Serve the page on this ADDRESS:PORT of the loopback interface; port 0 takes a free one; empty serves none,example=127.0.0.1:7070"`
	TokenFile string `yaml:"token_file" json:"token_file" jsonschema:"description=File of root's alone with the page's token; empty makes a new one at each start"`
	Terminal  bool   `yaml:"terminal" json:"terminal" jsonschema:"description=The page may run commands in sandboxes"`
}

// PageURL is the file that holds the URL of the page with its token.
func (c *Config) PageURL() string { return filepath.Join(c.State, "page.url") }

func (c *Config) validatePage() error {
	p := c.Page
	if p.Listen == "" {
		if p.TokenFile != "" || p.Terminal {
			return errors.New("page: token_file and terminal need page.listen")
		}
		return nil
	}
	var errs []error
	a, err := netip.ParseAddrPort(p.Listen)
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("page.listen: %q is no ADDRESS:PORT, such as 127.0.0.1:7070: %w", p.Listen, err))
	case !a.Addr().IsLoopback():
		errs = append(errs, fmt.Errorf("page.listen: %q is not on the loopback interface: give 127.0.0.1:PORT, and reach it from elsewhere through ssh -L", p.Listen))
	}
	if p.TokenFile != "" {
		errs = append(errs, absolute("page.token_file", p.TokenFile))
	}
	return errors.Join(errs...)
}
