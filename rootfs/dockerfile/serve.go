package dockerfile

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Serve plans a build for the daemon, which it asks for the images that FROM names.
func Serve(c *imageproc.Conn, request json.RawMessage, _ []*os.File) error {
	var r buildplan.Request
	if err := json.Unmarshal(request, &r); err != nil {
		return err
	}
	plan, err := New(r.File, Options{
		Args: r.Args, Target: r.Target, Platform: r.Platform, Secrets: r.Secrets,
		Image: func(name string) (Config, error) { return ask(c, name) },
	})
	if err != nil {
		return err
	}
	return c.Send(buildplan.MessagePlan, plan.ToWire())
}

func ask(c *imageproc.Conn, name string) (Config, error) {
	if err := c.Send(buildplan.MessageImage, name); err != nil {
		return Config{}, err
	}
	kind, body, err := c.Receive(buildplan.MaxMessage)
	if err != nil {
		return Config{}, err
	}
	var a buildplan.Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Config{}, fmt.Errorf("the answer %q: %w", kind, err)
	}
	if a.Failure != nil {
		return a.Config, a.Failure.Err()
	}
	return a.Config, nil
}
