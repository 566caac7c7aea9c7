package cluster

import (
	"fmt"
	"testing"
)

// TestFiles has a ConfigMap and a Secret as files, which change while the pod runs.
func TestFiles(t *testing.T) {
	kubectl(t, "create", "configmap", "settings", "--from-literal=colour=green")
	kubectl(t, "create", "secret", "generic", "keys", "--from-literal=key=hidden")
	t.Cleanup(func() { kubectl(t, "delete", "configmap/settings", "secret/keys") })
	apply(t, "files", `{containers: [{name: c, image: base, command: [sleep, "1000"],
  env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}],
  volumeMounts: [{name: settings, mountPath: /settings}, {name: keys, mountPath: /keys}]}],
  volumes: [{name: settings, configMap: {name: settings}}, {name: keys, secret: {secretName: keys, defaultMode: 0400}}]}`)
	phase(t, "files", "Running")
	const read = "echo $COLOUR; cat /settings/colour; echo; cat /keys/key"
	equal(t, "at first", kubectl(t, "exec", "files", "--", "sh", "-c", read), "green\ngreen\nhidden")
	kubectl(t, "patch", "configmap", "settings", "--type=merge", `-p={"data":{"colour":"blue"}}`)
	kubectl(t, "patch", "secret", "keys", "--type=merge", `-p={"stringData":{"key":"other"}}`)
	if err := until("both changed", func() error {
		if out := kubectl(t, "exec", "files", "--", "sh", "-c", read); out != "green\nblue\nother" {
			return fmt.Errorf("%q", out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if r := try("", "exec", "files", "--", "sh", "-c", "echo x > /settings/colour"); r.code == 0 {
		t.Error("a container can write to its ConfigMap")
	}
}
