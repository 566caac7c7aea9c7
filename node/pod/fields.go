package pod

import (
	"reflect"
	"strings"
)

// Verdict is what becomes of a field.
type Verdict string

// The verdicts.
const (
	Mapped  Verdict = "mapped"
	Ignored Verdict = "ignored"
	Refused Verdict = "refused"
)

// Field is the decision on one field of a pod's spec and on all below it. Text is what the field
// becomes, why it is ignored, or why it is refused.
type Field struct {
	Path    string
	Verdict Verdict
	Text    string
	check   func(reflect.Value) string // why this value is refused; empty: it is not
}

const (
	scheduling = "the control plane's: the pod is bound by then"
	hostOnly   = "a sandbox shares nothing with its host"
	notInit    = "only of containers"
	strictly   = "never looser than the profile"
	// EphemeralText is told of one container alone: its pod goes on.
	EphemeralText = "refused alone, and the pod goes on: use `kubectl exec`"
	noDrivers     = "there is no driver of volumes on this node"
)

// Fields decides every field of a pod's spec. Containers stands for initContainers too, where these
// have no row of their own.
var Fields = []Field{
	{"containers[].name", Mapped, "the label `k8s-container`", nil},
	{"containers[].image", Mapped, "`image`; a name without a registry is an image of the daemon", nil},
	{"containers[].imagePullPolicy", Mapped, "`Always` and `IfNotPresent` pull names with a registry", nil},
	{"containers[].command", Mapped, "`exec.args`, instead of the image's entry point", nil},
	{"containers[].args", Mapped, "`exec.args`, instead of the image's command", nil},
	{"containers[].workingDir", Mapped, "`exec.workdir`; absent: the image's", nil},
	{"containers[].stdin", Mapped, "`exec.stdin`", nil},
	{"containers[].stdinOnce", Ignored, "the input ends when an attached client ends it", nil},
	{"containers[].tty", Mapped, "`exec.tty`", nil},
	{"containers[].env[].name", Mapped, "`env`", nil},
	{"containers[].env[].value", Mapped, "`env`, with `$(NAME)` expanded", nil},
	{"containers[].env[].valueFrom.fieldRef", Mapped, "`env`", unknownFieldRef},
	{"containers[].env[].valueFrom.configMapKeyRef", Mapped, "`env`", nil},
	{"containers[].env[].valueFrom.secretKeyRef", Mapped, "`env`", nil},
	{"containers[].env[].valueFrom.resourceFieldRef", Refused, "not done yet", nil},
	{"containers[].env[].valueFrom.fileKeyRef", Refused, "not done yet", nil},
	{"containers[].envFrom", Mapped, "`env`", nil},
	{"containers[].resources.limits", Mapped, "`memory_bytes`, `milli_cpu`; [storage](#storage)", otherResources},
	{"containers[].resources.requests", Mapped, "`cpu_shares`; counted against the node", otherResources},
	{"containers[].resources.claims", Refused, "there are no devices inside", nil},
	{"containers[].resizePolicy", Refused, "limits do not change while a pod runs", nil},
	{"containers[].ports[].name", Mapped, "a name for [NetworkPolicies](#networkpolicy)", nil},
	{"containers[].ports[].containerPort", Mapped, "`publish` on the pod's address", lowPort},
	{"containers[].ports[].protocol", Mapped, "TCP", notTCP},
	{"containers[].ports[].hostPort", Refused, hostOnly, nil},
	{"containers[].ports[].hostIP", Refused, hostOnly, nil},
	{"containers[].volumeMounts[].name", Mapped, "`mounts`", nil},
	{"containers[].volumeMounts[].mountPath", Mapped, "`mounts.target`", nil},
	{"containers[].volumeMounts[].readOnly", Mapped, "`mounts.read_only`", nil},
	{"containers[].volumeMounts[].recursiveReadOnly", Refused, "not done yet", notValue("Disabled")},
	{"containers[].volumeMounts[].subPath", Refused, "not done yet", nil},
	{"containers[].volumeMounts[].subPathExpr", Refused, "not done yet", nil},
	{"containers[].volumeMounts[].mountPropagation", Refused, "not with the host", notValue("None")},
	{"containers[].volumeMounts[].bindMountOptions", Refused, "not done yet", nil},
	{"containers[].volumeDevices", Refused, "there are no devices inside", nil},
	{"containers[].readinessProbe", Mapped, "`exec` by Exec, the others by Forward", unknownProbe},
	{"initContainers[].readinessProbe", Refused, notInit, nil},
	{"containers[].livenessProbe", Mapped, "the same; Stop with the grace, then a restart", unknownProbe},
	{"initContainers[].livenessProbe", Refused, notInit, nil},
	{"containers[].startupProbe", Mapped, "the same", unknownProbe},
	{"initContainers[].startupProbe", Refused, notInit, nil},
	{"containers[].lifecycle.postStart", Mapped, "before the pod is told to run", unknownHook},
	{"containers[].lifecycle.preStop", Mapped, "before Stop, of the grace", unknownHook},
	{"containers[].lifecycle.stopSignal", Refused, "TERM, then KILL", notValue("SIGTERM")},
	{"initContainers[].lifecycle", Refused, notInit, nil},
	{"containers[].restartPolicy", Refused, "sidecars are refused: a pod has one container", nil},
	{"containers[].restartPolicyRules", Refused, "not done yet", nil},
	{"containers[].terminationMessagePath", Ignored, "the message of an end is caisson's", nil},
	{"containers[].terminationMessagePolicy", Ignored, "the message of an end is caisson's", nil},
	{"containers[].securityContext.runAsUser", Mapped, "`user`", rootUser},
	{"containers[].securityContext.runAsGroup", Mapped, "`user`", nil},
	{"containers[].securityContext.runAsNonRoot", Ignored, "always so", nil},
	{"containers[].securityContext.readOnlyRootFilesystem", Mapped, "`rootfs`; absent: the profile's", nil},
	{"containers[].securityContext.allowPrivilegeEscalation", Refused, "always false", nil},
	{"containers[].securityContext.privileged", Refused, strictly, nil},
	{"containers[].securityContext.capabilities.drop", Ignored, "always so", nil},
	{"containers[].securityContext.capabilities.add", Refused, strictly, nil},
	{"containers[].securityContext.procMount", Refused, strictly, notValue("Default")},
	{"containers[].securityContext.seccompProfile", Mapped, "`RuntimeDefault` is the profile's", notDefault},
	{"containers[].securityContext.appArmorProfile", Mapped, "`RuntimeDefault` is the profile's", notDefault},
	{"containers[].securityContext.seLinuxOptions", Refused, "labels of SELinux are the host's", nil},
	{"containers[].securityContext.windowsOptions", Refused, "this node runs Linux", nil},
	{"ephemeralContainers", Refused, EphemeralText, harmless},

	{"volumes[].name", Mapped, "the name of the volume, after the pod's UID", nil},
	{"volumes[].emptyDir.medium", Mapped, "a volume; `Memory`: a tmpfs of each container", hugePages},
	{"volumes[].emptyDir.sizeLimit", Mapped, "`size_bytes`; see [storage](#storage)", nil},
	{"volumes[].emptyDir.mode", Refused, "not done yet", nil},
	{"volumes[].configMap", Mapped, "a read-only directory; changes reach it", ownUsers},
	{"volumes[].secret", Mapped, "a read-only directory; changes reach it", ownUsers},
	{"volumes[].projected.defaultMode", Mapped, "of files without a mode of their own", nil},
	{"volumes[].projected.sources[].configMap", Mapped, "a read-only directory; changes reach it", ownUsers},
	{"volumes[].projected.sources[].secret", Mapped, "a read-only directory; changes reach it", ownUsers},
	{"volumes[].projected.sources[].serviceAccountToken", Mapped, "a file: [tokens](#tokens)", ownUsers},
	{"volumes[].projected.defaultUser", Refused, "files belong to the sandbox's user", nil},
	{"volumes[].projected.sources[].downwardAPI", Refused, "not done yet", nil},
	{"volumes[].projected.sources[].clusterTrustBundle", Refused, "not done yet", nil},
	{"volumes[].projected.sources[].podCertificate", Refused, "not done yet", nil},
	{"volumes[].downwardAPI", Refused, "not done yet", nil},
	{"volumes[].persistentVolumeClaim", Mapped, "a volume of the node: [claims](#claims-of-volumes)", nil},
	{"volumes[].ephemeral", Refused, noDrivers, nil},
	{"volumes[].csi", Refused, noDrivers, nil},
	{"volumes[].hostPath", Refused, hostOnly, nil},
	{"volumes[].image", Refused, "not done yet", nil},
	{"volumes[].awsElasticBlockStore", Refused, noDrivers, nil},
	{"volumes[].azureDisk", Refused, noDrivers, nil},
	{"volumes[].azureFile", Refused, noDrivers, nil},
	{"volumes[].cephfs", Refused, noDrivers, nil},
	{"volumes[].cinder", Refused, noDrivers, nil},
	{"volumes[].fc", Refused, noDrivers, nil},
	{"volumes[].flexVolume", Refused, noDrivers, nil},
	{"volumes[].flocker", Refused, noDrivers, nil},
	{"volumes[].gcePersistentDisk", Refused, noDrivers, nil},
	{"volumes[].gitRepo", Refused, noDrivers, nil},
	{"volumes[].glusterfs", Refused, noDrivers, nil},
	{"volumes[].iscsi", Refused, noDrivers, nil},
	{"volumes[].nfs", Refused, noDrivers, nil},
	{"volumes[].photonPersistentDisk", Refused, noDrivers, nil},
	{"volumes[].portworxVolume", Refused, noDrivers, nil},
	{"volumes[].quobyte", Refused, noDrivers, nil},
	{"volumes[].rbd", Refused, noDrivers, nil},
	{"volumes[].scaleIO", Refused, noDrivers, nil},
	{"volumes[].storageos", Refused, noDrivers, nil},
	{"volumes[].vsphereVolume", Refused, noDrivers, nil},

	{"restartPolicy", Mapped, "a new sandbox after each end, with a back-off", nil},
	{"terminationGracePeriodSeconds", Mapped, "`grace` of Stop", nil},
	{"activeDeadlineSeconds", Mapped, "Stop, then the reason `DeadlineExceeded`", nil},
	{"hostname", Mapped, "`hostname`; absent: the sandbox's ID", nil},
	{"subdomain", Ignored, "there is no DNS of the cluster inside", nil},
	{"setHostnameAsFQDN", Refused, "there is no DNS of the cluster inside", nil},
	{"hostnameOverride", Refused, "not done yet", nil},
	{"hostAliases", Refused, "names are resolved by the sandbox's gateway", nil},
	{"dnsPolicy", Ignored, "names are resolved by the sandbox's gateway", nil},
	{"dnsConfig", Ignored, "names are resolved by the sandbox's gateway", nil},
	{"hostNetwork", Refused, hostOnly, nil},
	{"hostPID", Refused, hostOnly, nil},
	{"hostIPC", Refused, hostOnly, nil},
	{"hostUsers", Refused, hostOnly, nil},
	{"shareProcessNamespace", Refused, "a pod has one container", nil},
	{"securityContext.runAsUser", Mapped, "`user`", rootUser},
	{"securityContext.runAsGroup", Mapped, "`user`", nil},
	{"securityContext.runAsNonRoot", Ignored, "always so", nil},
	{"securityContext.supplementalGroups", Ignored, "volumes are the sandbox user's already", nil},
	{"securityContext.supplementalGroupsPolicy", Ignored, "volumes are the sandbox user's already", nil},
	{"securityContext.fsGroup", Ignored, "volumes are the sandbox user's already", nil},
	{"securityContext.fsGroupChangePolicy", Ignored, "volumes are the sandbox user's already", nil},
	{"securityContext.sysctls", Refused, strictly, nil},
	{"securityContext.seccompProfile", Mapped, "`RuntimeDefault` is the profile's filter", notDefault},
	{"securityContext.appArmorProfile", Mapped, "`RuntimeDefault` is what the profile has", notDefault},
	{"securityContext.seLinuxOptions", Refused, "labels of SELinux are the host's", nil},
	{"securityContext.seLinuxChangePolicy", Refused, "labels of SELinux are the host's", nil},
	{"securityContext.windowsOptions", Refused, "this node runs Linux", nil},
	{"imagePullSecrets", Mapped, "`credentials` of the pull", nil},
	{"serviceAccountName", Mapped, "the account of the pod's [tokens](#tokens)", nil},
	{"serviceAccount", Ignored, "the old name of `serviceAccountName`", nil},
	{"automountServiceAccountToken", Ignored, "`kube-api-access-*` is left out: [tokens](#tokens)", nil},
	{"enableServiceLinks", Ignored, "addresses of the cluster are not inside", nil},
	{"os", Mapped, "Linux", notLinux},
	{"resources", Refused, "give them to the container", nil},
	{"resourceClaims", Refused, "there are no devices inside", nil},
	{"readinessGates", Mapped, "the condition Ready waits for them", nil},
	{"nodeName", Ignored, scheduling, nil},
	{"nodeSelector", Ignored, scheduling, nil},
	{"affinity", Ignored, scheduling, nil},
	{"tolerations", Ignored, scheduling, nil},
	{"schedulerName", Ignored, scheduling, nil},
	{"schedulingGates", Ignored, scheduling, nil},
	{"schedulingGroup", Ignored, scheduling, nil},
	{"topologySpreadConstraints", Ignored, scheduling, nil},
	{"priorityClassName", Ignored, scheduling, nil},
	{"priority", Ignored, scheduling, nil},
	{"preemptionPolicy", Ignored, scheduling, nil},
	{"runtimeClassName", Ignored, scheduling, nil},
	{"overhead", Ignored, scheduling, nil},
	{"evictionResponders", Ignored, scheduling, nil},
}

// row finds the decision on a path of types, such as "initContainers[].name".
func row(path string) (Field, bool) {
	if f, ok := rows[path]; ok {
		return f, true
	}
	f, ok := rows[strings.Replace(path, "initContainers[]", "containers[]", 1)]
	return f, ok
}

var rows = func() map[string]Field {
	m := map[string]Field{}
	for _, f := range Fields {
		m[f.Path] = f
	}
	return m
}()
