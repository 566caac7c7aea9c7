package mcp

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// report waits for a command and says how far it is. The end is reported once.
func (s *Server) report(ctx context.Context, req *sdk.CallToolRequest, c *command, wait time.Duration, notes []string) (*sdk.CallToolResult, bashOutput, error) {
	if err := c.await(ctx, wait, c.progress(ctx, req)); err != nil {
		s.commands.forget(c)
		return nil, bashOutput{}, fmt.Errorf("the call was cancelled, and the command was killed: %w", err)
	}
	if !c.ended() {
		out := bashOutput{Status: "running", ID: c.id, DurationMS: time.Since(c.began).Milliseconds(), Notes: notes}
		out.streams(c, "; it is kept in a file once the command has ended")
		return result(&out, false), out, nil
	}
	defer s.commands.forget(c)
	if c.err != nil && sbxerr.Of(c.err) != sbxerr.Canceled {
		return nil, bashOutput{}, failure(c.err)
	}
	out := ending(c, notes)
	path := ""
	if c.cut() {
		path = s.keepOutput(ctx, c, &out)
	}
	out.streams(c, path)
	out.Notes = append(out.Notes, refusals(c.result)...)
	return result(&out, out.Status != "exited" && !c.killed.Load()), out, nil
}

// progress tells the client each second how much the command wrote, where it asked for that.
func (c *command) progress(ctx context.Context, req *sdk.CallToolRequest) func() {
	token := req.Params.GetProgressToken()
	return func() {
		if token == nil {
			return
		}
		stdout, line := c.stdout.progress()
		stderr, _ := c.stderr.progress()
		message := fmt.Sprintf("%d bytes, %d s", stdout+stderr, int(time.Since(c.began).Seconds()))
		if line != "" {
			message += ": " + line
		}
		// A client that is gone ends the call by its context.
		_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Message: message, Progress: time.Since(c.began).Seconds()})
	}
}

// ending says how a command ended.
func ending(c *command, notes []string) bashOutput {
	out := bashOutput{Status: "killed", DurationMS: time.Since(c.began).Milliseconds(), Notes: notes}
	r := c.result
	if r == nil {
		return out
	}
	out.Signal, out.DurationMS = r.GetSignal(), r.GetDuration().AsDuration().Milliseconds()
	switch r.GetReason() {
	case "exited", "signaled":
		code := r.GetExitCode()
		out.Status, out.ExitCode = "exited", &code
	case "timeout", "oom":
		out.Status = r.GetReason()
	default:
		out.Notes = append(out.Notes, "the sandbox ended it: "+r.GetReason())
	}
	if n := r.GetRemaining(); n > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d processes that it started go on running", n))
	}
	if r.GetPidsLimitHit() {
		out.Notes = append(out.Notes, "the sandbox's limit of processes was hit")
	}
	for _, limit := range r.GetSandbox().GetLimitsHit() {
		out.Notes = append(out.Notes, "the sandbox's limit of "+limit+" was hit while the command ran, by it or by another one")
	}
	if full := r.GetFullTmpfs(); len(full) > 0 {
		out.Notes = append(out.Notes, "no space was left in "+strings.Join(full, ", "))
	}
	if slices.Contains(r.GetLimitsHit(), "disk") {
		out.Notes = append(out.Notes, "the sandbox's disk was full")
	}
	if full := r.GetFullVolumes(); len(full) > 0 {
		out.Notes = append(out.Notes, "the volume "+strings.Join(full, ", ")+" was full")
	}
	if r.GetReadOnlyHint() {
		out.Notes = append(out.Notes, "the root is read-only: /tmp, /home and a writable workspace take files")
	}
	return out
}

// cut reports whether less than all of the output was shown.
func (c *command) cut() bool {
	c.stdout.mu.Lock()
	defer c.stdout.mu.Unlock()
	c.stderr.mu.Lock()
	defer c.stderr.mu.Unlock()
	return c.stdout.total > c.stdout.limit || c.stderr.total > c.stderr.limit
}

// keepOutput writes what the daemon keeps of the output into a file of the sandbox. It
// returns a remark for the place where bytes are left out.
func (s *Server) keepOutput(ctx context.Context, c *command, out *bashOutput) string {
	exec := c.exec
	if exec == nil {
		return ""
	}
	path := "/tmp/output-" + exec.GetId() + ".txt"
	r, w := io.Pipe()
	go func() {
		_, err := s.client.Attach(ctx, exec.GetSandboxId(), exec.GetId(), api.AttachOptions{}, api.IO{Stdout: w, Stderr: w})
		_ = w.CloseWithError(err) // never fails
	}()
	_, err := s.client.WriteFile(ctx, &caissonv1.WriteFileHeader{Ref: exec.GetSandboxId(), Path: path}, r)
	_ = r.Close() // never fails
	if err != nil {
		out.Notes = append(out.Notes, "the whole output is in no file: "+failure(err).Error())
		return ""
	}
	if c.result.GetTruncated() {
		out.Notes = append(out.Notes, "the daemon keeps the beginning and the end of so much output; the file has those")
	}
	out.OutputPath = path
	return "; all of it: " + path
}

// streams adds what is new of the output.
func (o *bashOutput) streams(c *command, more string) {
	stdout, stderr := c.stdout.take(more), c.stderr.take(more)
	o.Stdout, o.Stderr = stdout.text, stderr.text
	o.StdoutBytes, _ = c.stdout.progress()
	o.StderrBytes, _ = c.stderr.progress()
	o.Truncated = stdout.cut || stderr.cut
}

// result is an output as a model reads it: clients may show it the text alone.
func result(o *bashOutput, failed bool) *sdk.CallToolResult {
	var b strings.Builder
	part := func(title, s string) {
		if s == "" {
			return
		}
		b.WriteString(title + s)
		if !strings.HasSuffix(s, "\n") {
			b.WriteByte('\n')
		}
	}
	part("", o.Stdout)
	part("[stderr]\n", o.Stderr)
	fmt.Fprintf(&b, "[%s, %d ms]", o.state(), o.DurationMS)
	for _, note := range o.Notes {
		b.WriteString("\n[" + note + "]")
	}
	r := text("%s", b.String())
	r.IsError = failed
	return r
}

func (o *bashOutput) state() string {
	switch {
	case o.Status == "running":
		return "running, id " + o.ID
	case o.ExitCode != nil:
		return fmt.Sprintf("exit %d", *o.ExitCode)
	case o.Status == "timeout":
		return "killed: its time was over"
	case o.Status == "oom":
		return "killed: out of memory"
	}
	return o.Status
}
