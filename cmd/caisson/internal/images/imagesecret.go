package images

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// buildSecret reads --secret, as docker build has it: id=ID[,src=FILE|,env=NAME]. Without
// either it is the variable ID, or else the file of that name.
func buildSecret(text string) (id string, data []byte, err error) {
	var file, env string
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "id":
			id = value
		case "src", "source":
			file = value
		case "env":
			env = value
		case "type":
			if value != "file" && value != "env" {
				return "", nil, cli.Usage("--secret %q: type is file or env", text)
			}
		default:
			return "", nil, cli.Usage("--secret %q: write id=ID, src=FILE or env=NAME", text)
		}
	}
	if id == "" || file != "" && env != "" {
		return "", nil, cli.Usage("--secret %q: give id=ID, and src=FILE or env=NAME", text)
	}
	if value, isSet := os.LookupEnv(cmp.Or(env, id)); isSet && file == "" {
		return id, []byte(value), nil
	}
	if env != "" {
		return "", nil, cli.Usage("--secret %q: the variable %s is not set", text, env)
	}
	if data, err = os.ReadFile(cmp.Or(file, id)); err != nil {
		err = sbxerr.Wrap(sbxerr.ClientIO, "caisson.build", fmt.Errorf("read the secret %q: %w", id, err))
	}
	return id, data, err
}
