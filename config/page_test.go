package config

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestPage(t *testing.T) {
	if d := Default(); d.Page.Listen != "" || d.Page.Terminal {
		t.Errorf("a page is served by default: %+v", d.Page)
	}
	for text, want := range map[string]string{
		"page: {listen: 127.0.0.1:7070}":                                    "",
		"page: {listen: '[::1]:0', token_file: /etc/token, terminal: true}": "",
		"page: {listen: 127.8.8.8:7070}":                                    "",
		"page: {listen: 0.0.0.0:7070}":                                      "not on the loopback interface",
		"page: {listen: '[::]:7070'}":                                       "not on the loopback interface",
		"page: {listen: 192.0.2.1:7070}":                                    "not on the loopback interface",
		"page: {listen: ':7070'}":                                           "is no ADDRESS:PORT",
		"page: {listen: localhost:7070}":                                    "is no ADDRESS:PORT",
		"page: {listen: 7070}":                                              "is no ADDRESS:PORT",
		"page: {terminal: true}":                                            "need page.listen",
		"page: {token_file: /etc/token}":                                    "need page.listen",
		"page: {listen: 127.0.0.1:1, token_file: token}":                    "page.token_file",
		"page: {listen: 127.0.0.1:1, tokn_file: /t}":                        `did you mean "token_file"?`,
	} {
		c, err := load(t, text)
		if err == nil {
			err = c.Complete()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
