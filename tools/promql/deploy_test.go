// Package promql checks the expressions of the dashboard and the alerts with the parser of
// Prometheus. That their metrics exist is a test of package metrics.
package promql

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	if _, err := p.ParseExpr("sum by (rate(x[5m]))"); err == nil {
		t.Fatal("the parser takes anything")
	}
	n := 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			n++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m") // Grafana's own
			if _, err := p.ParseExpr(expr); err != nil {
				t.Errorf("%s: %s: %v", panel.Title, expr, err)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d expressions", n)
	}
}

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := parse(text)
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 || len(groups.Groups[0].Rules) < 8 {
		t.Errorf("%+v", groups)
	}
	if _, errs := parse([]byte(strings.Replace(string(text), "expr: ", "expr: sum(", 1))); len(errs) == 0 {
		t.Error("a broken rule is taken")
	}
}

func parse(text []byte) (*rulefmt.RuleGroups, []error) {
	return rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
}
