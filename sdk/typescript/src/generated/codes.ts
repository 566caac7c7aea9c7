// Made from api/sbxerr/codes.go and api/sbxerr/table.go by tools/generate.mjs; do not edit.
import { CaissonError } from '../errors.js'

/** SBX-000: unclassified failure. */
export class UnknownError extends CaissonError {}

/** SBX-001: an invariant of the runtime did not hold. */
export class InternalError extends CaissonError {}

/** SBX-002: the caller disconnected or canceled the call. */
export class CanceledError extends CaissonError {}

/** SBX-003: a step took too long. */
export class DeadlineError extends CaissonError {}

/** SBX-004: no more files can be opened. */
export class NoFilesError extends CaissonError {}

/** SBX-101: the request can never succeed as written. */
export class ConfigError extends CaissonError {}

/** SBX-102: a resource limit is absent or out of range. */
export class LimitsError extends CaissonError {}

/** SBX-103: no such profile. */
export class ProfileError extends CaissonError {}

/** SBX-104: the directory of a workspace or mount is refused. */
export class WorkspaceError extends CaissonError {}

/** SBX-105: the daemon's configuration is refused. */
export class DaemonConfError extends CaissonError {}

/** SBX-106: the name or ID is taken. */
export class ExistsError extends CaissonError {}

/** SBX-107: no such sandbox. */
export class NotFoundError extends CaissonError {}

/** SBX-108: the state of the sandbox does not allow this. */
export class StateError extends CaissonError {}

/** SBX-109: a right is missing. */
export class RightsError extends CaissonError {}

/** SBX-110: another daemon holds this root. */
export class LockedError extends CaissonError {}

/** SBX-111: no free block of host ids. */
export class IDRangeError extends CaissonError {}

/** SBX-112: user namespaces cannot be used on this host. */
export class UserNSError extends CaissonError {}

/** SBX-113: too many sandboxes, commands or requests at once. */
export class BusyError extends CaissonError {}

/** SBX-114: the sandbox is paused. */
export class PausedError extends CaissonError {}

/** SBX-115: the sandbox has no such command. */
export class ExecNotFoundError extends CaissonError {}

/** SBX-116: a process limit is reached. */
export class ProcessesError extends CaissonError {}

/** SBX-117: a directory above the daemon's state is closed to sandboxes. */
export class StatePathError extends CaissonError {}

/** SBX-118: the command has ended, and its result is no longer kept. */
export class ExecForgottenError extends CaissonError {}

/** SBX-119: the setting cannot be enforced without isolation. */
export class UnisolatedError extends CaissonError {}

/** SBX-120: the backup is cut short, was changed, or is of another version or root. */
export class BackupError extends CaissonError {}

/** SBX-121: items of the backup exist here already. */
export class RestoreExistsError extends CaissonError {}

/** SBX-201: no such image. */
export class ImageNotFoundError extends CaissonError {}

/** SBX-202: the archive has no known image format. */
export class ImageFormatError extends CaissonError {}

/** SBX-203: the image has a forbidden entry. */
export class ImageContentError extends CaissonError {}

/** SBX-204: the image exceeds an import limit. */
export class ImageTooBigError extends CaissonError {}

/** SBX-205: the user does not resolve. */
export class ImageUserError extends CaissonError {}

/** SBX-206: a mount of the sandbox failed. */
export class MountError extends CaissonError {}

/** SBX-207: the file system cannot map ids. */
export class IDMapError extends CaissonError {}

/** SBX-208: overlay mounts do not work here. */
export class OverlayError extends CaissonError {}

/** SBX-209: software of the host could not be collected. */
export class FromHostError extends CaissonError {}

/** SBX-210: a sandbox uses the image. */
export class ImageInUseError extends CaissonError {}

/** SBX-211: the path cannot be used. */
export class FilePathError extends CaissonError {}

/** SBX-212: no such file or directory in the sandbox. */
export class FileAbsentError extends CaissonError {}

/** SBX-213: the sandbox's user may not do this to the file. */
export class FileRightsError extends CaissonError {}

/** SBX-214: the file exists, or the directory is not empty. */
export class FileExistsError extends CaissonError {}

/** SBX-215: the file has the wrong type. */
export class FileKindError extends CaissonError {}

/** SBX-216: the sandbox has no room left for the file. */
export class FileSpaceError extends CaissonError {}

/** SBX-217: a limit of file operations is exceeded. */
export class FileTooBigError extends CaissonError {}

/** SBX-218: the archive is malformed or has a forbidden entry. */
export class ArchiveError extends CaissonError {}

/** SBX-219: the sandbox's file system failed an operation. */
export class FileFailedError extends CaissonError {}

/** SBX-220: another image has this name. */
export class ImageExistsError extends CaissonError {}

/** SBX-221: the stored copy of the image is damaged. */
export class ImageDamagedError extends CaissonError {}

/** SBX-223: the copy out of the sandbox is larger than the caller allows. */
export class CopyTooBigError extends CaissonError {}

/** SBX-224: the configuration does not allow this image to be fetched. */
export class PullRefusedError extends CaissonError {}

/** SBX-225: the registry does not answer as it should. */
export class RegistryError extends CaissonError {}

/** SBX-226: the registry does not give the image to this user. */
export class RegistryAuthError extends CaissonError {}

/** SBX-227: the image is not verified as the configuration demands. */
export class ImageUnverifiedError extends CaissonError {}

/** SBX-228: a line of the Dockerfile is refused. */
export class DockerfileError extends CaissonError {}

/** SBX-229: a step of the build failed. */
export class BuildFailedError extends CaissonError {}

/** SBX-230: the bundle is damaged or not signed by the key. */
export class BundleError extends CaissonError {}

/** SBX-231: no such volume. */
export class VolumeNotFoundError extends CaissonError {}

/** SBX-232: a sandbox uses the volume. */
export class VolumeInUseError extends CaissonError {}

/** SBX-233: the process that reads an image, a Dockerfile or changes ended. */
export class ImageProcessError extends CaissonError {}

/** SBX-235: no such snapshot. */
export class SnapshotNotFoundError extends CaissonError {}

/** SBX-236: the image of the snapshot is another now. */
export class SnapshotImageError extends CaissonError {}

/** SBX-237: the sandbox has no disk to make a snapshot of. */
export class SnapshotDiskError extends CaissonError {}

/** SBX-238: a snapshot has no changes of a copy-on-write workspace. */
export class SnapshotWorkspaceError extends CaissonError {}

/** SBX-239: the host changed what is to be applied. */
export class ApplyConflictError extends CaissonError {}

/** SBX-240: a renamed directory cannot be applied while the sandbox lives. */
export class ApplyRenamedError extends CaissonError {}

/** SBX-241: the directory of the host does not take the changes. */
export class ApplyFailedError extends CaissonError {}

/** SBX-242: no such changeset. */
export class ChangesetNotFoundError extends CaissonError {}

/** SBX-243: the volume has another size. */
export class VolumeSizeError extends CaissonError {}

/** SBX-244: the set-up of the profile failed. */
export class TemplateFailedError extends CaissonError {}

/** SBX-245: the profile has no set-up. */
export class TemplateNotFoundError extends CaissonError {}

/** SBX-246: the snapshot does not fit the sandbox, or the other snapshot. */
export class SnapshotMismatchError extends CaissonError {}

/** SBX-247: the archive holds no snapshot. */
export class SnapshotArchiveError extends CaissonError {}

/** SBX-248: the archive is of a newer version. */
export class SnapshotVersionError extends CaissonError {}

/** SBX-249: a name in the snapshot has another meaning in an archive. */
export class SnapshotNameError extends CaissonError {}

/** SBX-250: the directory cannot be cloned. */
export class CloneSourceError extends CaissonError {}

/** SBX-251: the image has no git to make a clone with. */
export class CloneImageError extends CaissonError {}

/** SBX-252: git in the sandbox could not make the clone. */
export class CloneFailedError extends CaissonError {}

/** SBX-253: no snapshot can be made of the directory. */
export class SnapshotPathError extends CaissonError {}

/** SBX-234: a disk for a sandbox could not be made. */
export class DiskError extends CaissonError {}

/** SBX-301: the seccomp filter cannot be enforced. */
export class SeccompError extends CaissonError {}

/** SBX-302: no such seccomp profile. */
export class SeccompProfileError extends CaissonError {}

/** SBX-303: the host has no memory left for compiled filters. */
export class SeccompMemoryError extends CaissonError {}

/** SBX-304: the seccomp filter in force cannot be read back. */
export class SeccompUnreadError extends CaissonError {}

/** SBX-401: the network namespace could not be created. */
export class NetworkError extends CaissonError {}

/** SBX-402: a filter rule was rejected. */
export class NetRuleError extends CaissonError {}

/** SBX-403: the network mode is unknown or not offered. */
export class NetworkModeError extends CaissonError {}

/** SBX-404: an egress policy is refused as written. */
export class NetPolicyError extends CaissonError {}

/** SBX-405: a published port is taken on the host. */
export class PortTakenError extends CaissonError {}

/** SBX-407: nothing listens on the port inside the sandbox. */
export class PortClosedError extends CaissonError {}

/** SBX-406: a child sandbox would have more network than its parent. */
export class NetChildError extends CaissonError {}

/** SBX-408: the profile offers no route of this name. */
export class RouteNotOfferedError extends CaissonError {}

/** SBX-409: the port is not published for this client. */
export class PortClientError extends CaissonError {}

/** SBX-501: a cgroup operation failed. */
export class CgroupError extends CaissonError {}

/** SBX-502: a cgroup controller is missing. */
export class CgroupControllerError extends CaissonError {}

/** SBX-503: the sandbox used too much kernel memory outside its limits. */
export class KernelMemoryError extends CaissonError {}

/** SBX-504: the memory of sockets cannot be counted. */
export class SocketMemoryError extends CaissonError {}

/** SBX-601: containerd failed an operation. */
export class EngineError extends CaissonError {}

/** SBX-602: containerd does not answer. */
export class EngineDownError extends CaissonError {}

/** SBX-603: containerd or runc is too old or known to be vulnerable. */
export class EngineVersionError extends CaissonError {}

/** SBX-604: caisson-init did not answer or broke its protocol. */
export class InitError extends CaissonError {}

/** SBX-605: the live sandbox differs from its declaration. */
export class PostureError extends CaissonError {}

/** SBX-606: a binary of the installation is missing. */
export class BinaryError extends CaissonError {}

/** SBX-607: the command cannot be executed. */
export class NotExecutableError extends CaissonError {}

/** SBX-608: the command was not found. */
export class CommandAbsentError extends CaissonError {}

/** SBX-609: the daemon's own files cannot be read or written. */
export class StateDirError extends CaissonError {}

/** SBX-610: an entry in the daemon's directories cannot be removed, or is not its own, and is skipped. */
export class QuarantinedError extends CaissonError {}

/** SBX-611: output of the command was lost before the caller read it. */
export class OutputLostError extends CaissonError {}

/** SBX-701: no rule allows the destination. */
export class EgressDeniedError extends CaissonError {}

/** SBX-702: the name resolves to an address that is not public. */
export class EgressAddressError extends CaissonError {}

/** SBX-703: the connection does not name its host. */
export class EgressMismatchError extends CaissonError {}

/** SBX-704: an allowed name does not resolve. */
export class EgressResolveError extends CaissonError {}

/** SBX-705: an allowed destination does not answer. */
export class EgressDialError extends CaissonError {}

/** SBX-706: a limit of the sandbox's gateway is reached. */
export class EgressBusyError extends CaissonError {}

/** SBX-707: the gateway of a sandbox failed. */
export class GatewayError extends CaissonError {}

/** SBX-708: the host's upstream proxy does not connect to the destination. */
export class EgressProxyError extends CaissonError {}

/** SBX-709: the host's upstream proxy does not answer. */
export class EgressProxyDownError extends CaissonError {}

/** SBX-710: a TLS hello may hide the name that a rule depends on. */
export class EgressECHError extends CaissonError {}

/** SBX-711: a route does not pass a request or its answer on. */
export class EgressRouteError extends CaissonError {}

/** SBX-712: a secret is absent or its value cannot be used. */
export class SecretError extends CaissonError {}

/** SBX-713: the budget of a route is used up. */
export class BudgetError extends CaissonError {}

/** SBX-714: no such secret. */
export class SecretNotFoundError extends CaissonError {}

/** SBX-715: a route uses the secret. */
export class SecretInUseError extends CaissonError {}

/** SBX-801: the call is malformed. */
export class APIUsageError extends CaissonError {}

/** SBX-802: no daemon listens on the socket. */
export class DaemonOffError extends CaissonError {}

/** SBX-803: the connection to the daemon broke. */
export class APIBrokenError extends CaissonError {}

/** SBX-804: the caller's own file, input or output failed. */
export class ClientIOError extends CaissonError {}

/** SBX-805: the peer may not do this. */
export class PeerError extends CaissonError {}

/** SBX-806: the events after a cursor are no longer kept. */
export class EventsGoneError extends CaissonError {}

/** SBX-807: a filter of events cannot be read. */
export class EventsFilterError extends CaissonError {}

/** SBX-808: the page was called without its token, or with a stale one. */
export class PageTokenError extends CaissonError {}

/** SBX-809: the page does not serve this request. */
export class PageGuardError extends CaissonError {}

/** SBX-810: the key or certificate does not count here. */
export class KeyRefusedError extends CaissonError {}

/** SBX-811: this is not offered over the network. */
export class NotRemoteError extends CaissonError {}

/** SBX-812: no such key. */
export class KeyNotFoundError extends CaissonError {}

/** SBX-813: no such context. */
export class NoContextError extends CaissonError {}

/** SBX-814: the TLS connection cannot be trusted, or is refused. */
export class TLSRefusedError extends CaissonError {}

/** SBX-901: a record of the audit log cannot be written. */
export class AuditWriteError extends CaissonError {}

/** SBX-902: the audit log was changed, cut or reordered. */
export class AuditBrokenError extends CaissonError {}

/** SBX-903: a receiver of the audit log cannot be reached. */
export class ExportAwayError extends CaissonError {}

/** The class of each code. */
export const byCode: Readonly<Record<string, typeof CaissonError>> = {
  'SBX-000': UnknownError,
  'SBX-001': InternalError,
  'SBX-002': CanceledError,
  'SBX-003': DeadlineError,
  'SBX-004': NoFilesError,
  'SBX-101': ConfigError,
  'SBX-102': LimitsError,
  'SBX-103': ProfileError,
  'SBX-104': WorkspaceError,
  'SBX-105': DaemonConfError,
  'SBX-106': ExistsError,
  'SBX-107': NotFoundError,
  'SBX-108': StateError,
  'SBX-109': RightsError,
  'SBX-110': LockedError,
  'SBX-111': IDRangeError,
  'SBX-112': UserNSError,
  'SBX-113': BusyError,
  'SBX-114': PausedError,
  'SBX-115': ExecNotFoundError,
  'SBX-116': ProcessesError,
  'SBX-117': StatePathError,
  'SBX-118': ExecForgottenError,
  'SBX-119': UnisolatedError,
  'SBX-120': BackupError,
  'SBX-121': RestoreExistsError,
  'SBX-201': ImageNotFoundError,
  'SBX-202': ImageFormatError,
  'SBX-203': ImageContentError,
  'SBX-204': ImageTooBigError,
  'SBX-205': ImageUserError,
  'SBX-206': MountError,
  'SBX-207': IDMapError,
  'SBX-208': OverlayError,
  'SBX-209': FromHostError,
  'SBX-210': ImageInUseError,
  'SBX-211': FilePathError,
  'SBX-212': FileAbsentError,
  'SBX-213': FileRightsError,
  'SBX-214': FileExistsError,
  'SBX-215': FileKindError,
  'SBX-216': FileSpaceError,
  'SBX-217': FileTooBigError,
  'SBX-218': ArchiveError,
  'SBX-219': FileFailedError,
  'SBX-220': ImageExistsError,
  'SBX-221': ImageDamagedError,
  'SBX-223': CopyTooBigError,
  'SBX-224': PullRefusedError,
  'SBX-225': RegistryError,
  'SBX-226': RegistryAuthError,
  'SBX-227': ImageUnverifiedError,
  'SBX-228': DockerfileError,
  'SBX-229': BuildFailedError,
  'SBX-230': BundleError,
  'SBX-231': VolumeNotFoundError,
  'SBX-232': VolumeInUseError,
  'SBX-233': ImageProcessError,
  'SBX-235': SnapshotNotFoundError,
  'SBX-236': SnapshotImageError,
  'SBX-237': SnapshotDiskError,
  'SBX-238': SnapshotWorkspaceError,
  'SBX-239': ApplyConflictError,
  'SBX-240': ApplyRenamedError,
  'SBX-241': ApplyFailedError,
  'SBX-242': ChangesetNotFoundError,
  'SBX-243': VolumeSizeError,
  'SBX-244': TemplateFailedError,
  'SBX-245': TemplateNotFoundError,
  'SBX-246': SnapshotMismatchError,
  'SBX-247': SnapshotArchiveError,
  'SBX-248': SnapshotVersionError,
  'SBX-249': SnapshotNameError,
  'SBX-250': CloneSourceError,
  'SBX-251': CloneImageError,
  'SBX-252': CloneFailedError,
  'SBX-253': SnapshotPathError,
  'SBX-234': DiskError,
  'SBX-301': SeccompError,
  'SBX-302': SeccompProfileError,
  'SBX-303': SeccompMemoryError,
  'SBX-304': SeccompUnreadError,
  'SBX-401': NetworkError,
  'SBX-402': NetRuleError,
  'SBX-403': NetworkModeError,
  'SBX-404': NetPolicyError,
  'SBX-405': PortTakenError,
  'SBX-407': PortClosedError,
  'SBX-406': NetChildError,
  'SBX-408': RouteNotOfferedError,
  'SBX-409': PortClientError,
  'SBX-501': CgroupError,
  'SBX-502': CgroupControllerError,
  'SBX-503': KernelMemoryError,
  'SBX-504': SocketMemoryError,
  'SBX-601': EngineError,
  'SBX-602': EngineDownError,
  'SBX-603': EngineVersionError,
  'SBX-604': InitError,
  'SBX-605': PostureError,
  'SBX-606': BinaryError,
  'SBX-607': NotExecutableError,
  'SBX-608': CommandAbsentError,
  'SBX-609': StateDirError,
  'SBX-610': QuarantinedError,
  'SBX-611': OutputLostError,
  'SBX-701': EgressDeniedError,
  'SBX-702': EgressAddressError,
  'SBX-703': EgressMismatchError,
  'SBX-704': EgressResolveError,
  'SBX-705': EgressDialError,
  'SBX-706': EgressBusyError,
  'SBX-707': GatewayError,
  'SBX-708': EgressProxyError,
  'SBX-709': EgressProxyDownError,
  'SBX-710': EgressECHError,
  'SBX-711': EgressRouteError,
  'SBX-712': SecretError,
  'SBX-713': BudgetError,
  'SBX-714': SecretNotFoundError,
  'SBX-715': SecretInUseError,
  'SBX-801': APIUsageError,
  'SBX-802': DaemonOffError,
  'SBX-803': APIBrokenError,
  'SBX-804': ClientIOError,
  'SBX-805': PeerError,
  'SBX-806': EventsGoneError,
  'SBX-807': EventsFilterError,
  'SBX-808': PageTokenError,
  'SBX-809': PageGuardError,
  'SBX-810': KeyRefusedError,
  'SBX-811': NotRemoteError,
  'SBX-812': KeyNotFoundError,
  'SBX-813': NoContextError,
  'SBX-814': TLSRefusedError,
  'SBX-901': AuditWriteError,
  'SBX-902': AuditBrokenError,
  'SBX-903': ExportAwayError,
}
