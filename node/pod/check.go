// Package pod turns a pod of Kubernetes into requests to caisson. It touches nothing.
package pod

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Refusal is a field of a pod that this node cannot honour.
type Refusal struct {
	Field string // as in the manifest, such as "spec.containers[0].lifecycle"
	Why   string
}

// String names the field and the reason.
func (r Refusal) String() string { return r.Field + ": " + r.Why }

// Text joins refusals in one line.
func Text(refusals []Refusal) string {
	lines := make([]string, len(refusals))
	for i, r := range refusals {
		lines[i] = r.String()
	}
	return strings.Join(lines, "; ")
}

// maxPorts is how many ports a sandbox can publish, and lowestPort the first of them.
const (
	maxPorts   = 16
	lowestPort = 54
)

// Check returns every reason why p cannot run here. A field without a decision is refused.
func Check(p *corev1.Pod, offer Offer) []Refusal {
	c := &checker{}
	c.walk(reflect.ValueOf(withoutAPIAccess(p.Spec)), "", "spec")
	if n := len(p.Spec.Containers); n != 1 {
		c.add("spec.containers", fmt.Sprintf("a pod has one container here, not %d: sidecars are refused", n))
	}
	ports := 0
	for _, container := range p.Spec.Containers {
		ports += len(container.Ports)
	}
	for i, container := range p.Spec.Containers {
		if uid, gid := ids(p, container); uid == nil && gid != nil {
			c.add(fmt.Sprintf("spec.containers[%d].securityContext.runAsGroup", i), "a group comes with runAsUser here")
		}
	}
	if ports > maxPorts {
		c.add("spec.containers[0].ports", fmt.Sprintf("at most %d can be published, not %d", maxPorts, ports))
	}
	return slices.Concat(c.refusals, offer.check(p.Annotations), checkRuntime(p))
}

// apiAccess says that a volume is the one that the API server adds for tokens.
func apiAccess(v corev1.Volume) bool {
	return v.Projected != nil && strings.HasPrefix(v.Name, "kube-api-access-")
}

// withoutAPIAccess empties the volumes that are left out. The others keep their index.
func withoutAPIAccess(s corev1.PodSpec) corev1.PodSpec {
	s.Volumes = slices.Clone(s.Volumes)
	for i, v := range s.Volumes {
		if apiAccess(v) {
			s.Volumes[i] = corev1.Volume{Name: v.Name}
		}
	}
	return s
}

type checker struct{ refusals []Refusal }

func (c *checker) add(field, why string) {
	c.refusals = append(c.refusals, Refusal{Field: field, Why: why})
}

// walk decides on v at a path of types, shown as a path of the manifest.
func (c *checker) walk(v reflect.Value, path, shown string) {
	if f, ok := row(path); ok {
		c.decide(f, v, shown)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.walk(v.Elem(), path, shown)
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(v.Index(i), path+"[]", shown+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Struct:
		c.fields(v, path, shown)
	default:
		if !v.IsZero() {
			c.add(shown, "this node does not know the field")
		}
	}
}

func (c *checker) fields(v reflect.Value, path, shown string) {
	for i := range v.NumField() {
		name := jsonName(v.Type().Field(i))
		if name == "" { // inline
			c.walk(v.Field(i), path, shown)
			continue
		}
		c.walk(v.Field(i), strings.TrimPrefix(path+"."+name, "."), shown+"."+name)
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func (c *checker) decide(f Field, v reflect.Value, shown string) {
	if v.IsZero() {
		return
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if f.check != nil {
		if why := f.check(v); why != "" {
			c.add(shown, why)
		}
		return
	}
	if f.Verdict == Refused && !v.IsZero() {
		c.add(shown, f.Text)
	}
}

// harmless is for fields of which the refusal is told elsewhere.
func harmless(reflect.Value) string { return "" }

func notValue(harmless string) func(reflect.Value) string {
	return func(v reflect.Value) string {
		if v.String() == harmless {
			return ""
		}
		return fmt.Sprintf("only %s", harmless)
	}
}

func rootUser(v reflect.Value) string {
	if v.Int() == 0 {
		return "a command does not run as root here"
	}
	return ""
}

func lowPort(v reflect.Value) string {
	if v.Int() < lowestPort {
		return fmt.Sprintf("ports begin at %d", lowestPort)
	}
	return ""
}

func notTCP(v reflect.Value) string {
	if v.String() != string(corev1.ProtocolTCP) {
		return "only TCP can be published"
	}
	return ""
}

func notLinux(v reflect.Value) string {
	if v.FieldByName("Name").String() != string(corev1.Linux) {
		return "this node runs Linux"
	}
	return ""
}

func notDefault(v reflect.Value) string {
	if v.FieldByName("Type").String() != "RuntimeDefault" {
		return "only RuntimeDefault"
	}
	return ""
}

func hugePages(v reflect.Value) string {
	if m := v.String(); m != string(corev1.StorageMediumMemory) {
		return "only Memory"
	}
	return ""
}

// ownUsers refuses files of users other than the sandbox's, in a source of files.
func ownUsers(v reflect.Value) string {
	users := []reflect.Value{v.FieldByName("User"), v.FieldByName("DefaultUser")}
	if items := v.FieldByName("Items"); items.IsValid() {
		for i := range items.Len() {
			users = append(users, items.Index(i).FieldByName("User"))
		}
	}
	if slices.ContainsFunc(users, func(u reflect.Value) bool { return u.IsValid() && !u.IsZero() }) {
		return "user and defaultUser: files belong to the sandbox's user"
	}
	return ""
}

func otherResources(v reflect.Value) string {
	known := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for name := range v.Interface().(corev1.ResourceList) {
		if !slices.Contains(known, name) {
			return fmt.Sprintf("there is no %s here", name)
		}
	}
	return ""
}

func unknownFieldRef(v reflect.Value) string {
	ref := v.Interface().(corev1.ObjectFieldSelector)
	if _, ok := fieldOf(&corev1.Pod{}, Facts{}, ref.FieldPath); !ok {
		return fmt.Sprintf("no value for %s", ref.FieldPath)
	}
	return ""
}

func unknownProbe(v reflect.Value) string {
	probe := v.Interface().(corev1.Probe)
	return otherHost(probe.ProbeHandler)
}

func otherHost(h corev1.ProbeHandler) string {
	switch {
	case h.HTTPGet != nil && h.HTTPGet.Host != "":
		return "httpGet.host: only the pod itself is asked"
	case h.TCPSocket != nil && h.TCPSocket.Host != "":
		return "tcpSocket.host: only the pod itself is asked"
	}
	return ""
}

func unknownHook(v reflect.Value) string {
	hook := v.Interface().(corev1.LifecycleHandler)
	if hook.TCPSocket != nil {
		return "tcpSocket is no hook"
	}
	return otherHost(corev1.ProbeHandler{HTTPGet: hook.HTTPGet})
}
