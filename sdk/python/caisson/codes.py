"""One exception class for each error code. Made by tools/codes.py; do not edit."""

from typing import Dict, Type

from .errors import CaissonError


class Unknown(CaissonError):
    """SBX-000: unclassified failure."""

    code = "SBX-000"


class Internal(CaissonError):
    """SBX-001: an invariant of the runtime did not hold."""

    code = "SBX-001"


class Canceled(CaissonError):
    """SBX-002: the caller disconnected or canceled the call."""

    code = "SBX-002"


class Deadline(CaissonError):
    """SBX-003: a step took too long."""

    code = "SBX-003"


class NoFiles(CaissonError):
    """SBX-004: no more files can be opened."""

    code = "SBX-004"


class Config(CaissonError):
    """SBX-101: the request can never succeed as written."""

    code = "SBX-101"


class Limits(CaissonError):
    """SBX-102: a resource limit is absent or out of range."""

    code = "SBX-102"


class Profile(CaissonError):
    """SBX-103: no such profile."""

    code = "SBX-103"


class Workspace(CaissonError):
    """SBX-104: the directory of a workspace or mount is refused."""

    code = "SBX-104"


class DaemonConf(CaissonError):
    """SBX-105: the daemon's configuration is refused."""

    code = "SBX-105"


class Exists(CaissonError):
    """SBX-106: the name or ID is taken."""

    code = "SBX-106"


class NotFound(CaissonError):
    """SBX-107: no such sandbox."""

    code = "SBX-107"


class State(CaissonError):
    """SBX-108: the state of the sandbox does not allow this."""

    code = "SBX-108"


class Rights(CaissonError):
    """SBX-109: a right is missing."""

    code = "SBX-109"


class Locked(CaissonError):
    """SBX-110: another daemon holds this root."""

    code = "SBX-110"


class IDRange(CaissonError):
    """SBX-111: no free block of host ids."""

    code = "SBX-111"


class UserNS(CaissonError):
    """SBX-112: user namespaces cannot be used on this host."""

    code = "SBX-112"


class Busy(CaissonError):
    """SBX-113: too many sandboxes, commands or requests at once."""

    code = "SBX-113"


class Paused(CaissonError):
    """SBX-114: the sandbox is paused."""

    code = "SBX-114"


class ExecNotFound(CaissonError):
    """SBX-115: the sandbox has no such command."""

    code = "SBX-115"


class Processes(CaissonError):
    """SBX-116: a process limit is reached."""

    code = "SBX-116"


class StatePath(CaissonError):
    """SBX-117: a directory above the daemon's state is closed to sandboxes."""

    code = "SBX-117"


class ExecForgotten(CaissonError):
    """SBX-118: the command has ended, and its result is no longer kept."""

    code = "SBX-118"


class Unisolated(CaissonError):
    """SBX-119: the setting cannot be enforced without isolation."""

    code = "SBX-119"


class Backup(CaissonError):
    """SBX-120: the backup is cut short, was changed, or is of another version or root."""

    code = "SBX-120"


class RestoreExists(CaissonError):
    """SBX-121: items of the backup exist here already."""

    code = "SBX-121"


class ImageNotFound(CaissonError):
    """SBX-201: no such image."""

    code = "SBX-201"


class ImageFormat(CaissonError):
    """SBX-202: the archive has no known image format."""

    code = "SBX-202"


class ImageContent(CaissonError):
    """SBX-203: the image has a forbidden entry."""

    code = "SBX-203"


class ImageTooBig(CaissonError):
    """SBX-204: the image exceeds an import limit."""

    code = "SBX-204"


class ImageUser(CaissonError):
    """SBX-205: the user does not resolve."""

    code = "SBX-205"


class Mount(CaissonError):
    """SBX-206: a mount of the sandbox failed."""

    code = "SBX-206"


class IDMap(CaissonError):
    """SBX-207: the file system cannot map ids."""

    code = "SBX-207"


class Overlay(CaissonError):
    """SBX-208: overlay mounts do not work here."""

    code = "SBX-208"


class FromHost(CaissonError):
    """SBX-209: software of the host could not be collected."""

    code = "SBX-209"


class ImageInUse(CaissonError):
    """SBX-210: a sandbox uses the image."""

    code = "SBX-210"


class FilePath(CaissonError):
    """SBX-211: the path cannot be used."""

    code = "SBX-211"


class FileAbsent(CaissonError):
    """SBX-212: no such file or directory in the sandbox."""

    code = "SBX-212"


class FileRights(CaissonError):
    """SBX-213: the sandbox's user may not do this to the file."""

    code = "SBX-213"


class FileExists(CaissonError):
    """SBX-214: the file exists, or the directory is not empty."""

    code = "SBX-214"


class FileKind(CaissonError):
    """SBX-215: the file has the wrong type."""

    code = "SBX-215"


class FileSpace(CaissonError):
    """SBX-216: the sandbox has no room left for the file."""

    code = "SBX-216"


class FileTooBig(CaissonError):
    """SBX-217: a limit of file operations is exceeded."""

    code = "SBX-217"


class Archive(CaissonError):
    """SBX-218: the archive is malformed or has a forbidden entry."""

    code = "SBX-218"


class FileFailed(CaissonError):
    """SBX-219: the sandbox's file system failed an operation."""

    code = "SBX-219"


class ImageExists(CaissonError):
    """SBX-220: another image has this name."""

    code = "SBX-220"


class ImageDamaged(CaissonError):
    """SBX-221: the stored copy of the image is damaged."""

    code = "SBX-221"


class CopyTooBig(CaissonError):
    """SBX-223: the copy out of the sandbox is larger than the caller allows."""

    code = "SBX-223"


class PullRefused(CaissonError):
    """SBX-224: the configuration does not allow this image to be fetched."""

    code = "SBX-224"


class Registry(CaissonError):
    """SBX-225: the registry does not answer as it should."""

    code = "SBX-225"


class RegistryAuth(CaissonError):
    """SBX-226: the registry does not give the image to this user."""

    code = "SBX-226"


class ImageUnverified(CaissonError):
    """SBX-227: the image is not verified as the configuration demands."""

    code = "SBX-227"


class Dockerfile(CaissonError):
    """SBX-228: a line of the Dockerfile is refused."""

    code = "SBX-228"


class BuildFailed(CaissonError):
    """SBX-229: a step of the build failed."""

    code = "SBX-229"


class Bundle(CaissonError):
    """SBX-230: the bundle is damaged or not signed by the key."""

    code = "SBX-230"


class VolumeNotFound(CaissonError):
    """SBX-231: no such volume."""

    code = "SBX-231"


class VolumeInUse(CaissonError):
    """SBX-232: a sandbox uses the volume."""

    code = "SBX-232"


class ImageProcess(CaissonError):
    """SBX-233: the process that reads an image, a Dockerfile or changes ended."""

    code = "SBX-233"


class SnapshotNotFound(CaissonError):
    """SBX-235: no such snapshot."""

    code = "SBX-235"


class SnapshotImage(CaissonError):
    """SBX-236: the image of the snapshot is another now."""

    code = "SBX-236"


class SnapshotDisk(CaissonError):
    """SBX-237: the sandbox has no disk to make a snapshot of."""

    code = "SBX-237"


class SnapshotWorkspace(CaissonError):
    """SBX-238: a snapshot has no changes of a copy-on-write workspace."""

    code = "SBX-238"


class ApplyConflict(CaissonError):
    """SBX-239: the host changed what is to be applied."""

    code = "SBX-239"


class ApplyRenamed(CaissonError):
    """SBX-240: a renamed directory cannot be applied while the sandbox lives."""

    code = "SBX-240"


class ApplyFailed(CaissonError):
    """SBX-241: the directory of the host does not take the changes."""

    code = "SBX-241"


class ChangesetNotFound(CaissonError):
    """SBX-242: no such changeset."""

    code = "SBX-242"


class VolumeSize(CaissonError):
    """SBX-243: the volume has another size."""

    code = "SBX-243"


class TemplateFailed(CaissonError):
    """SBX-244: the set-up of the profile failed."""

    code = "SBX-244"


class TemplateNotFound(CaissonError):
    """SBX-245: the profile has no set-up."""

    code = "SBX-245"


class SnapshotMismatch(CaissonError):
    """SBX-246: the snapshot does not fit the sandbox, or the other snapshot."""

    code = "SBX-246"


class SnapshotArchive(CaissonError):
    """SBX-247: the archive holds no snapshot."""

    code = "SBX-247"


class SnapshotVersion(CaissonError):
    """SBX-248: the archive is of a newer version."""

    code = "SBX-248"


class SnapshotName(CaissonError):
    """SBX-249: a name in the snapshot has another meaning in an archive."""

    code = "SBX-249"


class CloneSource(CaissonError):
    """SBX-250: the directory cannot be cloned."""

    code = "SBX-250"


class CloneImage(CaissonError):
    """SBX-251: the image has no git to make a clone with."""

    code = "SBX-251"


class CloneFailed(CaissonError):
    """SBX-252: git in the sandbox could not make the clone."""

    code = "SBX-252"


class SnapshotPath(CaissonError):
    """SBX-253: no snapshot can be made of the directory."""

    code = "SBX-253"


class Disk(CaissonError):
    """SBX-234: a disk for a sandbox could not be made."""

    code = "SBX-234"


class Seccomp(CaissonError):
    """SBX-301: the seccomp filter cannot be enforced."""

    code = "SBX-301"


class SeccompProfile(CaissonError):
    """SBX-302: no such seccomp profile."""

    code = "SBX-302"


class SeccompMemory(CaissonError):
    """SBX-303: the host has no memory left for compiled filters."""

    code = "SBX-303"


class SeccompUnread(CaissonError):
    """SBX-304: the seccomp filter in force cannot be read back."""

    code = "SBX-304"


class Network(CaissonError):
    """SBX-401: the network namespace could not be created."""

    code = "SBX-401"


class NetRule(CaissonError):
    """SBX-402: a filter rule was rejected."""

    code = "SBX-402"


class NetworkMode(CaissonError):
    """SBX-403: the network mode is unknown or not offered."""

    code = "SBX-403"


class NetPolicy(CaissonError):
    """SBX-404: an egress policy is refused as written."""

    code = "SBX-404"


class PortTaken(CaissonError):
    """SBX-405: a published port is taken on the host."""

    code = "SBX-405"


class PortClosed(CaissonError):
    """SBX-407: nothing listens on the port inside the sandbox."""

    code = "SBX-407"


class NetChild(CaissonError):
    """SBX-406: a child sandbox would have more network than its parent."""

    code = "SBX-406"


class RouteNotOffered(CaissonError):
    """SBX-408: the profile offers no route of this name."""

    code = "SBX-408"


class PortClient(CaissonError):
    """SBX-409: the port is not published for this client."""

    code = "SBX-409"


class Cgroup(CaissonError):
    """SBX-501: a cgroup operation failed."""

    code = "SBX-501"


class CgroupController(CaissonError):
    """SBX-502: a cgroup controller is missing."""

    code = "SBX-502"


class KernelMemory(CaissonError):
    """SBX-503: the sandbox used too much kernel memory outside its limits."""

    code = "SBX-503"


class SocketMemory(CaissonError):
    """SBX-504: the memory of sockets cannot be counted."""

    code = "SBX-504"


class Engine(CaissonError):
    """SBX-601: containerd failed an operation."""

    code = "SBX-601"


class EngineDown(CaissonError):
    """SBX-602: containerd does not answer."""

    code = "SBX-602"


class EngineVersion(CaissonError):
    """SBX-603: containerd or runc is too old or known to be vulnerable."""

    code = "SBX-603"


class Init(CaissonError):
    """SBX-604: caisson-init did not answer or broke its protocol."""

    code = "SBX-604"


class Posture(CaissonError):
    """SBX-605: the live sandbox differs from its declaration."""

    code = "SBX-605"


class Binary(CaissonError):
    """SBX-606: a binary of the installation is missing."""

    code = "SBX-606"


class NotExecutable(CaissonError):
    """SBX-607: the command cannot be executed."""

    code = "SBX-607"


class CommandAbsent(CaissonError):
    """SBX-608: the command was not found."""

    code = "SBX-608"


class StateDir(CaissonError):
    """SBX-609: the daemon's own files cannot be read or written."""

    code = "SBX-609"


class Quarantined(CaissonError):
    """SBX-610: an entry in the daemon's directories cannot be removed, or is not its own, and is
    skipped."""

    code = "SBX-610"


class OutputLost(CaissonError):
    """SBX-611: output of the command was lost before the caller read it."""

    code = "SBX-611"


class EgressDenied(CaissonError):
    """SBX-701: no rule allows the destination."""

    code = "SBX-701"


class EgressAddress(CaissonError):
    """SBX-702: the name resolves to an address that is not public."""

    code = "SBX-702"


class EgressMismatch(CaissonError):
    """SBX-703: the connection does not name its host."""

    code = "SBX-703"


class EgressResolve(CaissonError):
    """SBX-704: an allowed name does not resolve."""

    code = "SBX-704"


class EgressDial(CaissonError):
    """SBX-705: an allowed destination does not answer."""

    code = "SBX-705"


class EgressBusy(CaissonError):
    """SBX-706: a limit of the sandbox's gateway is reached."""

    code = "SBX-706"


class Gateway(CaissonError):
    """SBX-707: the gateway of a sandbox failed."""

    code = "SBX-707"


class EgressProxy(CaissonError):
    """SBX-708: the host's upstream proxy does not connect to the destination."""

    code = "SBX-708"


class EgressProxyDown(CaissonError):
    """SBX-709: the host's upstream proxy does not answer."""

    code = "SBX-709"


class EgressECH(CaissonError):
    """SBX-710: a TLS hello may hide the name that a rule depends on."""

    code = "SBX-710"


class EgressRoute(CaissonError):
    """SBX-711: a route does not pass a request or its answer on."""

    code = "SBX-711"


class Secret(CaissonError):
    """SBX-712: a secret is absent or its value cannot be used."""

    code = "SBX-712"


class Budget(CaissonError):
    """SBX-713: the budget of a route is used up."""

    code = "SBX-713"


class SecretNotFound(CaissonError):
    """SBX-714: no such secret."""

    code = "SBX-714"


class SecretInUse(CaissonError):
    """SBX-715: a route uses the secret."""

    code = "SBX-715"


class APIUsage(CaissonError):
    """SBX-801: the call is malformed."""

    code = "SBX-801"


class DaemonOff(CaissonError):
    """SBX-802: no daemon listens on the socket."""

    code = "SBX-802"


class APIBroken(CaissonError):
    """SBX-803: the connection to the daemon broke."""

    code = "SBX-803"


class ClientIO(CaissonError):
    """SBX-804: the caller's own file, input or output failed."""

    code = "SBX-804"


class Peer(CaissonError):
    """SBX-805: the peer may not do this."""

    code = "SBX-805"


class EventsGone(CaissonError):
    """SBX-806: the events after a cursor are no longer kept."""

    code = "SBX-806"


class EventsFilter(CaissonError):
    """SBX-807: a filter of events cannot be read."""

    code = "SBX-807"


class PageToken(CaissonError):
    """SBX-808: the page was called without its token, or with a stale one."""

    code = "SBX-808"


class PageGuard(CaissonError):
    """SBX-809: the page does not serve this request."""

    code = "SBX-809"


class KeyRefused(CaissonError):
    """SBX-810: the key or certificate does not count here."""

    code = "SBX-810"


class NotRemote(CaissonError):
    """SBX-811: this is not offered over the network."""

    code = "SBX-811"


class KeyNotFound(CaissonError):
    """SBX-812: no such key."""

    code = "SBX-812"


class NoContext(CaissonError):
    """SBX-813: no such context."""

    code = "SBX-813"


class TLSRefused(CaissonError):
    """SBX-814: the TLS connection cannot be trusted, or is refused."""

    code = "SBX-814"


class AuditWrite(CaissonError):
    """SBX-901: a record of the audit log cannot be written."""

    code = "SBX-901"


class AuditBroken(CaissonError):
    """SBX-902: the audit log was changed, cut or reordered."""

    code = "SBX-902"


class ExportAway(CaissonError):
    """SBX-903: a receiver of the audit log cannot be reached."""

    code = "SBX-903"


BY_CODE: Dict[str, Type[CaissonError]] = {c.code: c for c in CaissonError.__subclasses__()}
