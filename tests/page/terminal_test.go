package page

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// shell is, in JavaScript, what the terminal shows.
const shell = "(document.querySelector('.shell .xterm-rows')?.innerText ?? '').replaceAll('\\u00a0', ' ')"

// TestTerminal works in a shell on the page, where the operator allows it.
func TestTerminal(t *testing.T) {
	b := openBrowser(t)
	d := harness.StartWith(t, "page: {listen: '127.0.0.1:0', terminal: true}\n")
	whole, origin, token := pageURL(t, d)
	id := create(t, d, "--name", "workplace")
	b.open(t, whole)
	b.click(t, row("workplace"))
	b.click(t, button("Terminal"))
	b.await(t, "a prompt", shell+".match(/[$#~] *$/m)")
	b.keys(t, "echo $((6*7)) $TERM; stty size\r")
	b.await(t, "what the shell answers", shell+".match(/^42 xterm-256color$/m)")
	b.await(t, "its size", shell+".match(/^[0-9]+ [0-9]+ *$/m)")
	wide := eval[string](t, b, shell+".match(/^[0-9]+ [0-9]+ *$/m)[0]")
	b.keys(t, "printf '\\033[38;2;200;10;10mred\\033[0m\\n'; printf 'gr\\303\\274n\\n'\r")
	b.await(t, "characters of two bytes", shell+".match(/^grün$/m)")
	if red := eval[string](t, b, "[...document.querySelectorAll('.shell .xterm-rows span')].filter((s) => s.innerText === 'red').map((s) => getComputedStyle(s).color).pop() ?? ''"); red != "rgb(200, 10, 10)" {
		t.Errorf("the red text is %s", red)
	}
	b.keys(t, "echo begun; sleep 1000\r")
	b.await(t, "the command that is interrupted", shell+".match(/^begun$/m)")
	b.keys(t, "\x03") // Ctrl-C
	b.keys(t, "echo after\r")
	b.await(t, "the prompt after Ctrl-C", shell+".match(/^after$/m)")
	b.look(t, 700, 1000, "light")
	b.keys(t, "clear; stty size\r")
	b.await(t, "the new size", shell+".match(/^[0-9]+ [0-9]+ *$/m) && !"+shell+".includes("+"'"+strings.TrimSpace(wide)+"')")
	b.shoot(t, "terminal")
	b.click(t, button("End the shell"))
	b.await(t, "no terminal", "!document.querySelector('.shell')")
	b.await(t, "the end of the command", "document.querySelector('.commands').innerText.includes('signaled') || document.querySelector('.commands').innerText.includes('exit')")
	if ps := d.Run(t, "ps", "-o", "json", id).Stdout; strings.Contains(ps, `"running"`) {
		t.Errorf("the shell runs on: %s", ps)
	}
	b.checkQuiet(t, origin, token)
}

// TestNoTerminal: where the operator does not allow it, the page offers none.
func TestNoTerminal(t *testing.T) {
	b := openBrowser(t)
	whole, _, _ := pageURL(t, daemon)
	create(t, daemon, "--name", "closed")
	b.open(t, whole)
	b.click(t, row("closed"))
	b.await(t, "the buttons", "document.querySelector('.title .actions').innerText.includes('Stop')")
	if text := eval[string](t, b, "document.querySelector('.title .actions').innerText"); strings.Contains(text, "Terminal") {
		t.Errorf("the buttons are %q", text)
	}
}
