package pod

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox"
)

// Annotations that a pod may have.
const (
	annotationPrefix  = "caisson.run/"
	annotationProfile = annotationPrefix + "profile"
	annotationAllow   = annotationPrefix + "allow"
	annotationRuntime = annotationPrefix + "runtime"
)

// Offer is what the operator of a node lets pods choose.
type Offer struct {
	Profile  string   // of pods that name none; empty is caisson's default
	Profiles []string // that pods may name
	Allow    bool     // pods may name destinations
}

// check refuses annotations of caisson that are unknown or not offered.
func (o Offer) check(annotations map[string]string) []Refusal {
	var refusals []Refusal
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, annotationPrefix) {
			continue
		}
		why := ""
		switch {
		case key == annotationProfile && !slices.Contains(o.Profiles, annotations[key]):
			why = "the operator does not offer this profile"
		case key == annotationAllow && !o.Allow:
			why = "the operator lets no pod name destinations"
		case key == annotationRuntime && agentsandbox.Ports(annotations[key]) == nil:
			why = "no such runtime: python or sandboxd"
		case !slices.Contains([]string{annotationProfile, annotationAllow, annotationRuntime}, key):
			why = "no such annotation"
		}
		if why != "" {
			refusals = append(refusals, Refusal{Field: "metadata.annotations[" + key + "]", Why: why})
		}
	}
	return refusals
}

// apply sets profile and policy of a sandbox. Destinations are separated by spaces: a rule may
// have a comma itself.
func (o Offer) apply(p *corev1.Pod, s *caissonv1.SandboxSpec) {
	s.Profile = o.Profile
	if profile := p.Annotations[annotationProfile]; profile != "" {
		s.Profile = profile
	}
	if allow := p.Annotations[annotationAllow]; allow != "" {
		s.Network, s.Allow = "allow", strings.Fields(allow)
	}
}
