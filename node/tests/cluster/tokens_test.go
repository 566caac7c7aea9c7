package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestToken has a pod's token for an audience, which the API server takes for no other.
func TestToken(t *testing.T) {
	kubectl(t, "create", "serviceaccount", "robot")
	t.Cleanup(func() { kubectl(t, "delete", "serviceaccount", "robot") })
	apply(t, "token", `{serviceAccountName: robot, securityContext: {runAsUser: 1000, fsGroup: 1000},
  containers: [{name: c, image: base, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /tokens}]}],
  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {audience: vault, expirationSeconds: 600, path: token}}]}}]}`)
	phase(t, "token", "Running")
	text := kubectl(t, "exec", "token", "--", "cat", "/tokens/token")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		t.Fatalf("the token is %q", text)
	}
	var claims struct {
		Aud        []string
		Sub        string
		Kubernetes struct {
			Pod struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(body, &claims)
	}
	uid := kubectl(t, "get", "pod", "token", "-o", "jsonpath={.metadata.uid}")
	if err != nil || !slices.Equal(claims.Aud, []string{"vault"}) || claims.Sub != "system:serviceaccount:default:robot" || claims.Kubernetes.Pod.UID != uid {
		t.Errorf("the token says %s, %v", body, err)
	}
	for audience, want := range map[string]string{"vault": "true", "other": ""} {
		review := fmt.Sprintf("apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: %q, audiences: [%s]}\n", text, audience)
		r := try(review, "create", "-f", "-", "-o", "jsonpath={.status.authenticated}")
		if r.code != 0 || r.out != want {
			t.Errorf("%s: %+v", audience, r)
		}
	}
	if r := try("", "exec", "token", "--", "sh", "-c", "ls /var/run/secrets/kubernetes.io"); r.code == 0 {
		t.Errorf("it has a token of the API server: %s", r.out)
	}
}

// TestTokenOfNobody: without its service account a pod waits, and nothing starts.
func TestTokenOfNobody(t *testing.T) {
	kubectl(t, "create", "serviceaccount", "gone")
	apply(t, "nobody", `{serviceAccountName: gone, nodeSelector: {later: "yes"}, containers: [{name: c, image: base, command: [sleep, "1000"],
  volumeMounts: [{name: v, mountPath: /tokens}]}], volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}`)
	kubectl(t, "delete", "serviceaccount", "gone")
	name := site.nodes[0].name
	kubectl(t, "label", "node", name, "later=yes")
	t.Cleanup(func() { kubectl(t, "label", "node", name, "later-") })
	eventually(t, "nobody", ".status.containerStatuses[0].state.waiting.reason", "CreateContainerError")
	if out := kubectl(t, "get", "pod", "nobody", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.message}"); !strings.Contains(out, "gone") {
		t.Errorf("it says %q", out)
	}
}
