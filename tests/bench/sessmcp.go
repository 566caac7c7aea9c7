package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcp measures the tools of caisson mcp over standard input and output, as an agent's
// client has them.
func (s *suite) mcp() {
	site := s.plainSite()
	box := site.create()
	defer site.mustRemove(box.Id)
	server := site.daemon.Command(s.t.Context(), "mcp", "--sandbox", box.Id)
	begin := time.Now()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "bench"}, nil).Connect(s.t.Context(), &sdk.CommandTransport{Command: server}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	started := time.Since(begin)
	defer session.Close()
	call := func(tool string, args map[string]any) {
		r, err := session.CallTool(s.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil || r.IsError {
			s.t.Fatalf("%s: %v, %+v", tool, err, r)
		}
	}
	call("write_file", map[string]any{"path": "/tmp/file", "content": "some text\n"})
	var bash, read, alone times
	for range s.rounds * 10 {
		bash = append(bash, took(func() { call("bash", map[string]any{"command": "true"}) }))
		read = append(read, took(func() { call("read_file", map[string]any{"path": "/tmp/file"}) }))
		alone = append(alone, took(func() {
			if _, err := site.execTrue(s.t.Context(), box.Id); err != nil {
				s.t.Fatal(err)
			}
		}))
	}
	resident := residentMB(server.Process.Pid)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "MCP over standard input and output", Runs: []Run{
		{Name: "caisson", What: "bash of true", Took: bash.summary()},
		{Name: "caisson", What: "read_file", Took: read.summary()},
		{Name: "caisson", What: "exec /bin/true over the API", Took: alone.summary()},
	}, Figures: []Figure{{"start to the first answer", started.Seconds() * 1000, "ms"}, {"resident memory", resident, "MB"}}})
	s.r.target(atMost("MCP bash of true, p50", bash.summary().P50, 3, "ms"))
	s.r.target(atMost("MCP read_file, p50", read.summary().P50, 1, "ms"))
	s.r.target(atMost("MCP server, start to the first answer", started.Seconds()*1000, 50, "ms"))
	s.r.target(atMost("MCP server, resident memory", resident, 30, "MB"))
}

// residentMB is the resident memory of a process; see VmRSS in proc_pid_status(5).
func residentMB(pid int) float64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kb, _ := strconv.ParseFloat(strings.Fields(after)[0], 64) // the kernel wrote it
	return kb / 1024
}
