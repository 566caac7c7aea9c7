// Made from api/openapi/openapi.json by tools/generate.mjs; do not edit.
import type { Int64, OptionalInt64, OptionalNumber, Timestamp, Duration, Bytes } from '../scalars.js'

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description AddressVerdict is the decision on one address of a name. */
        AddressVerdict: {
            address: string;
            allowed: boolean;
            /** @description of a refusal */
            code: string;
            /** @description the rule that would allow it; empty where none can */
            needs: string;
            /** @description of a refusal */
            reason: string;
            rule: string;
        };
        ApplyRequest: {
            /**
             * @description of a path that both sides changed, "ours" keeps the host's and "theirs" takes the sandbox's; empty: refuse
             * @enum {string}
             */
            conflicts?: "" | "ours" | "theirs";
            /** @description only answer what would be applied */
            dry_run?: boolean;
            /** @description apply control files as well */
            include_control?: boolean;
            /** @description below the workspace: they and all below them; empty: all */
            paths?: string[];
        };
        ApplyResponse: {
            /** @description that the host has now, or would have */
            changes: components["schemas"]["Change"][];
            /** @description paths that both sides changed */
            conflicts: components["schemas"]["ChangeNote"][];
            /** @description control files that were left out */
            control: components["schemas"]["Change"][];
            /** @description paths that were not applied */
            left: components["schemas"]["ChangeNote"][];
            /** @description paths that differ from the workspace, such as without a set-user-ID bit */
            notes: components["schemas"]["ChangeNote"][];
        };
        AttachExecRequest: {
            /** Format: int64 */
            stderr_offset?: Int64;
            /**
             * Format: int64
             * @description bytes that the caller has already
             */
            stdout_offset?: Int64;
        };
        AttachSnapshotRequest: {
            /** @description where it is mounted inside, absolute; empty is where it was */
            path?: string;
            /** @description of a directory */
            snapshot?: string;
        };
        AttachWorkspaceRequest: {
            /** @description whose path is empty, or /workspace */
            workspace?: components["schemas"]["Workspace"];
        };
        BuildImageRequest: {
            /** @description values of ARG */
            args?: {
                [key: string]: string;
            };
            /** @description Image with the files for COPY in its folder /context; empty: there are none. One whose name begins with "build-context/" is removed after the build. */
            context?: string;
            dockerfile?: Bytes;
            /** @description of the image */
            name?: string;
            /** @description build nothing: the one message holds needs */
            needs_only?: boolean;
            /** @description do all steps again */
            no_cache?: boolean;
            /** @description only profile, limits, network, allow, deny and allow_ech, for each RUN */
            sandbox?: components["schemas"]["SandboxSpec"];
            /** @description Files for RUN --mount=type=secret, by id. At most 500 KiB each. Nothing keeps them. */
            secrets?: {
                [key: string]: Bytes;
            };
            /** @description name or number of the stage; empty: the last */
            target?: string;
            /**
             * @description of each RUN; absent: none
             * @example 90s
             */
            timeout?: Duration;
        };
        /** @description BuildNeeds is what a build reads. Once an absent image is there, it may need others. */
        BuildNeeds: {
            /** @description it reads files of the context */
            context: boolean;
            /** @description that it begins with or copies from */
            images: string[];
        };
        /** @description BuildProgress is a step that begins, or output of its command. The last one holds image. */
        BuildProgress: {
            /** @description an earlier build did the step */
            cached: boolean;
            image?: components["schemas"]["Image"];
            /** @description empty: this is output */
            instruction: string;
            /**
             * Format: int32
             * @description of the Dockerfile
             */
            line: number;
            needs?: components["schemas"]["BuildNeeds"];
            /** @description digest of the image of the same name that it replaced; empty: none */
            replaced: string;
            stderr: Bytes;
            stdout: Bytes;
            /**
             * Format: int32
             * @description from 1
             */
            step: number;
            /** Format: int32 */
            steps: number;
        };
        BuildTemplateRequest: {
            /** @description also where there is one, and all of it */
            no_cache?: boolean;
        };
        CapabilitiesResponse: {
            capabilities: components["schemas"]["Capability"][];
        };
        /** @description Capability says how a field of a request is honoured on this host. */
        Capability: {
            detail: string;
            field: string;
            /** @enum {string} */
            support: "enforced" | "best_effort" | "unsupported";
        };
        /** @description Change is a name under which the workspace differs from the host's directory, or a snapshot from an earlier one. Paths are below the workspace, the directory of the snapshots or the sandbox's root. */
        Change: {
            /** @description it changes a file that controls programs of the host: apply leaves it out */
            control: boolean;
            /**
             * @description "added", "modified", "deleted", "renamed"
             * @enum {string}
             */
            kind: "added" | "modified" | "deleted" | "renamed";
            /** @description now; absent if it was deleted, with all that it held */
            new?: components["schemas"]["ChangeState"];
            /** @description before; absent if it was added */
            old?: components["schemas"]["ChangeState"];
            /** @description old path of a renamed directory; changes in it are listed separately */
            old_path: string;
            /** @description the same for old_path */
            old_path_bytes: Bytes;
            path: string;
            /** @description the path where it is not UTF-8; else empty */
            path_bytes: Bytes;
        };
        ChangeNote: {
            path: string;
            /** @description the path where it is not UTF-8; else empty */
            path_bytes: Bytes;
            reason: string;
        };
        ChangeState: {
            /** @description target of a symlink */
            link: string;
            /**
             * Format: int64
             * @description permission bits
             */
            mode: number;
            /**
             * Format: int64
             * @description of a file
             */
            size_bytes: Int64;
            /**
             * @description "file", "directory", "symlink", "fifo", "socket", "device"
             * @enum {string}
             */
            type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
        };
        /** @description Changeset is what an ended sandbox changed in its copy-on-write workspace. */
        Changeset: {
            /** @description of the sandbox */
            id: string;
            /** Format: date-time */
            kept_at?: Timestamp;
            labels: {
                [key: string]: string;
            };
            /** @description of the sandbox */
            name: string;
            /**
             * Format: int64
             * @description uid of the user to whom it belongs
             */
            owner: number;
            session: string;
            /**
             * Format: int64
             * @description that it takes of the disk of root
             */
            size_bytes: Int64;
            /** @description directory of the host */
            workspace: string;
        };
        CheckPolicyRequest: {
            /** @description Addresses that the host of target leads to, as the caller found them. Each is judged. */
            addresses?: string[];
            policy?: components["schemas"]["PolicyQuery"];
            /** @description a URL, HOST or HOST:PORT; without a port and a scheme 443 */
            target?: string;
        };
        CheckPolicyResponse: {
            /** @description of those that were given, in their order */
            addresses: components["schemas"]["AddressVerdict"][];
            allowed: boolean;
            /** @description of a refusal */
            code: string;
            /** @description in its canonical form, or an address */
            host: string;
            /** @description the rule that would allow it; empty where none can */
            needs: string;
            /** @enum {string} */
            network: "none" | "allow" | "open" | "bridge";
            /** Format: int64 */
            port: number;
            /** @description of a refusal; else what way it takes, if that is not the usual one */
            reason: string;
            /** @description of a refusal */
            remedy: string;
            /** @description that caused the decision */
            rule: string;
        };
        CleanResponse: {
            /**
             * Format: int32
             * @description of /tmp that were removed, a directory as one
             */
            files: number;
            /**
             * Format: int32
             * @description that were ended
             */
            processes: number;
        };
        CleanupRequest: {
            dry_run?: boolean;
        };
        CleanupResponse: {
            leftovers: components["schemas"]["Leftover"][];
        };
        CopyInResponse: {
            /** Format: int64 */
            bytes: Int64;
            /** Format: int64 */
            entries: Int64;
        };
        CreateRequest: {
            /** @description [METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a child: rules that those of its parent cover (else SBX-406), and its parent's where it names none. */
            allow?: string[];
            /** @description Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where a rule depends on it. The profile may say so as well. */
            allow_ech?: boolean;
            /** @description Caches of package managers, by name: cargo, go, maven, npm, nuget, pip or uv, or NAME=PATH for one of another tool, mounted at PATH. Each is the caller's volume caisson-cache-NAME, which many sandboxes read; what one writes goes to its disk. Absent are the profile's. */
            caches?: string[];
            /** @description as allow, beside the profile's; deny beats allow */
            deny?: string[];
            /** @description Resolvers to ask for names, ADDRESS or ADDRESS:PORT, at most 3, among those of network.dns_allowed in the configuration. Absent are those of network.dns. */
            dns?: string[];
            /** @description Return the live sandbox of the name when it was made with the same settings. What Update changed since does not count, and stays. A sandbox of the name that has ended is removed and replaced. One that was made for one command, whose result it holds, is not. */
            ensure?: boolean;
            /** @description of all its commands, added to the image's */
            env?: {
                [key: string]: string;
            };
            /** @description Ports inside to which links of the same owner's sandboxes may lead, from 54. */
            expose?: number[];
            /** @description Name of a snapshot. The sandbox begins with a copy of its disk, and has its image, profile, user, env, network policy, limits and labels where the request names none. */
            from?: string;
            /** @description A label of RFC 1123: 1 to 63 letters, digits and - inside. Empty is the sandbox ID. Such a sandbox comes from no pool. */
            hostname?: string;
            /** @description A repeated request with the same key returns the sandbox of the first. Up to 128 printable ASCII characters. */
            idempotency_key?: string;
            /**
             * @description Since no command ran and nobody worked on its files; with on_idle "pause" since nothing worked inside. Zero is never, absent the profile's.
             * @example 90s
             */
            idle_timeout?: Duration;
            /** @description empty is the profile's */
            image?: string;
            labels?: {
                [key: string]: string;
            };
            /** @description Language of the work, such as "python". Without an image here or in the profile, images.languages of the configuration says which image is for it, else it is base. */
            language?: string;
            /** @description how the caller knows, such as the name of a file; the result repeats it */
            language_reason?: string;
            limits?: components["schemas"]["Limits"];
            /** @description NAME=SANDBOX:PORT: NAME, which has no dot, and PORT lead to that port of the sandbox, which exposes it. Such a sandbox is in the mode "allow" or "open". */
            links?: string[];
            /** @description at most 16, beside the workspace */
            mounts?: components["schemas"]["Mount"][];
            /** @description unique; empty is the sandbox ID */
            name?: string;
            /** @description a socket to make sandboxes of its own; absent is none */
            nested?: components["schemas"]["Nested"];
            /**
             * @description "none", "allow", "open", or "bridge" where the operator offers it; empty is "allow" where allow is given, else the profile's. A child of a sandbox has "none" where it names nothing, and "none" or "allow".
             * @enum {string}
             */
            network?: "" | "none" | "allow" | "open" | "bridge";
            /**
             * @description What happens when the sandbox was idle for idle_timeout, which is at least a second for "pause": "remove", or "pause" until somebody uses it. Empty is the profile's, else "remove".
             * @enum {string}
             */
            on_idle?: "" | "remove" | "pause";
            /** @description empty is "strict" */
            profile?: string;
            /** @description [ADDRESS:]PORT:PORT: TCP port of the host and port inside. The address is 127.0.0.1 where none is given; port 0 of the host has a free one picked. */
            publish?: string[];
            /** @description End and remove the caller's sandbox of the name first, live or not. A request that is refused removes nothing. Not with ensure. */
            replace?: boolean;
            /**
             * @description "ro", or "rw": the root can be written, and the sandbox's disk holds what is written. If no limit sizes the disk, sandboxes.disk of the configuration does. Empty is the profile's.
             * @enum {string}
             */
            rootfs?: "" | "ro" | "rw";
            /** @description Names of routes that the profile has on request, beside those of each of its sandboxes. Of a child: routes that its parent has, and no other (else SBX-406). Root also gives routes whole, as NAME={upstream: URL, credential: SECRET}, in YAML or JSON. The keys are those of a route in the configuration. */
            routes?: string[];
            session?: string;
            /** @description Name of a snapshot that is made of the disk when the sandbox ends, whatever ends it. If there is one of that name by then, it is followed by a dash and some letters. */
            snapshot_on_end?: string;
            task?: string;
            /**
             * @description When its time is over a sandbox is ended and removed, paused or not, with the output and the results of its commands. Calls for it then have SBX-107, which says so for as long as the daemon remembers it: 1024 of them, the oldest of whoever had most forgotten first.
             * @example 90s
             */
            ttl?: Duration;
            /** @description name, uid, or uid:gid; empty is the profile's */
            user?: string;
            workspace?: components["schemas"]["Workspace"];
        };
        CreateSnapshotRequest: {
            /** @description 1 to 128 letters, digits, and _ . - after the first; empty is one that is made up */
            name?: string;
            /** @description absolute: of this directory alone */
            path?: string;
            /** @description of the sandbox */
            ref?: string;
        };
        CreateVolumeRequest: {
            /**
             * Format: int64
             * @description files and directories; 0 is one for each 16 KiB
             */
            inodes?: Int64;
            /** @description 1 to 128 letters, digits, and _ . - after the first */
            name?: string;
            /**
             * Format: int64
             * @description 16 MiB to 1 TiB. Absent is sandboxes.volume_size of the configuration.
             */
            size_bytes?: Int64;
        };
        DiffResponse: {
            /** @description by name */
            changes: components["schemas"]["Change"][];
            /** @description paths of which the patch has no content */
            left: components["schemas"]["ChangeNote"][];
            patch: Bytes;
            /** @description there are more than the daemon lists */
            truncated: boolean;
        };
        DiscardChangesetResponse: Record<string, never>;
        /** @description DiskUsage is the room that one image takes. */
        DiskUsage: {
            /** @description with its stored size */
            image?: components["schemas"]["Image"];
            /**
             * Format: int64
             * @description of it in layers that another of the images has, too
             */
            shared_bytes: Int64;
            /**
             * Format: int64
             * @description of its unpacked layers, beside the stored ones
             */
            unpacked_bytes: Int64;
        };
        /** @description DoctorCheck is one finding about the host. */
        DoctorCheck: {
            /** @description SBX code that a run would fail with */
            code: string;
            detail: string;
            name: string;
            remedy: string;
            /** @enum {string} */
            status: "ok" | "warn" | "fail" | "unknown";
        };
        DoctorResponse: {
            checks: components["schemas"]["DoctorCheck"][];
            ok: boolean;
        };
        /** @description Egress counts what went through the gateway for one sandbox. In the mode bridge refused counts packets that the namespace's rules refused, the bytes are those that crossed the sandbox's link, headers included, and nothing else counts but lost. In the mode none refused counts attempts to leave, and lookups_refused datagrams to closed ports inside, as lookups are; nothing else counts. In every mode the bytes hold those of connections through published ports that are over. */
        Egress: {
            /** Format: int64 */
            allowed: Int64;
            /**
             * Format: double
             * @description in the unit of prices
             */
            cost: number;
            /**
             * Format: int64
             * @description allowed, but the destination was not to be had
             */
            failed: Int64;
            /**
             * Format: int64
             * @description that models read
             */
            input_tokens: Int64;
            /** Format: int64 */
            lookups_answered: Int64;
            /** Format: int64 */
            lookups_refused: Int64;
            /**
             * Format: int64
             * @description attempts of which nothing is known: they ended with a gateway, or were too many
             */
            lost: Int64;
            /**
             * Format: int64
             * @description connections now
             */
            open: Int64;
            /**
             * Format: int64
             * @description that models wrote
             */
            output_tokens: Int64;
            /** Format: int64 */
            received_bytes: Int64;
            /** Format: int64 */
            refused: Int64;
            /**
             * Format: int64
             * @description What requests by routes took that are over, with those of the sandboxes made inside.
             */
            requests: Int64;
            /** Format: int64 */
            sent_bytes: Int64;
        };
        /** @description Why a call failed. */
        Error: {
            error: {
                /** @description why, where something below said so */
                cause: string;
                /**
                 * @description of the code
                 * @enum {string}
                 */
                class: "invalid_input" | "policy_refusal" | "host" | "engine_failure" | "sandbox_down" | "timeout" | "internal";
                /** @description SBX-nnn, which is stable: docs/reference/errors.md */
                code: string;
                /** @description what was refused or failed */
                message: string;
                /** @description what to do about it */
                remedy: string;
                /** @description of the call */
                request_id?: string;
                /** @description the same call may succeed later */
                retryable: boolean;
            };
        };
        /** @description ErrorDetail accompanies every error of a call. */
        ErrorDetail: {
            cause: string;
            /** @enum {string} */
            class: "invalid_input" | "policy_refusal" | "host" | "engine_failure" | "sandbox_down" | "timeout" | "internal";
            /** @description SBX-nnn */
            code: string;
            message: string;
            remedy: string;
            /** @description of the call: the header X-Request-Id */
            request_id: string;
            retryable: boolean;
        };
        /** @description Event is one event in the form of CloudEvents 1.0. */
        Event: {
            data?: components["schemas"]["EventData"];
            /** @description unique on this host, and a cursor for since; empty of "run.caisson.events.lost" */
            id?: string;
            /** @description the daemon */
            source?: string;
            /** @description "1.0" */
            specversion?: string;
            /** @description such as "sandboxes/ID/execs/1" */
            subject?: string;
            /** Format: date-time */
            time?: Timestamp;
            /** @description such as "run.caisson.exec.ended" */
            type?: string;
        };
        /** @description EventData describes an event. Fields that do not apply to it are absent. */
        EventData: {
            /**
             * @description on a file
             * @enum {string}
             */
            action?: "read" | "write" | "make" | "move" | "remove" | "copy_in" | "copy_out";
            address?: string;
            /** @description of a command, at most 4 KiB of JSON */
            args?: string[];
            /**
             * Format: int64
             * @description of which args_digest is
             */
            args_bytes?: Int64;
            /** @description SHA-256 of all args, each with a zero byte at its end; where args has less */
            args_digest?: string;
            /** Format: int64 */
            bytes?: Int64;
            /** @description procedure of the API */
            call?: string;
            /** @description "uid 1000", "uid 1000 by key NAME", "sandbox ID" or "the daemon" */
            caller?: string;
            /**
             * Format: int32
             * @description that were applied
             */
            changes?: number;
            /** @description of a failure */
            code?: string;
            /** @description SHA-256 of the effective configuration as JSON */
            config_digest?: string;
            /** @description as config_digest, before the configuration was reloaded */
            config_digest_before?: string;
            /**
             * Format: double
             * @description in the unit of prices
             */
            cost?: number;
            /** @example 90s */
            cpu?: Duration;
            /** @description that was added, set or removed: the name of a secret */
            credential?: string;
            cwd?: string;
            /** @example 90s */
            duration?: Duration;
            /** @description names of variables, never values */
            env?: string[];
            /** @description of a command in the sandbox, as id of an Exec */
            exec_id?: string;
            /** Format: int32 */
            exit_code?: OptionalNumber;
            /** @description SHA-256 of the seccomp filters that PID 1 has in force */
            filter_digest?: string;
            /** @description name that was asked for */
            host?: string;
            image?: string;
            image_digest?: string;
            /** @description the rule that the image was verified by when it was pulled */
            image_verified?: string;
            /**
             * Format: int64
             * @description Of sandbox.ended: what its requests by routes took, with those of the sandboxes made inside.
             */
            input_tokens?: Int64;
            /** @description input files of a command */
            inputs?: components["schemas"]["EventInput"][];
            /**
             * @description absent unless commands of the sandbox run as a user of the host
             * @enum {string}
             */
            isolation?: "sandbox" | "none";
            /** @description of the configuration, whose values changed */
            keys?: string[];
            /**
             * @description of an attempt to connect
             * @enum {string}
             */
            kind?: "connection" | "lookup" | "link" | "inbound" | "packet" | "request" | "gap";
            /** @description That was hit: "memory", "pids", "cpu", "kernel_memory", "time", "output", "tmpfs", "disk"; of an alert also "refusals". */
            limit?: string;
            /**
             * Format: uint64
             * @description events that the reader missed
             */
            lost?: Int64;
            /**
             * Format: int64
             * @description of output that the disk did not take
             */
            lost_bytes?: Int64;
            /**
             * Format: int64
             * @description limits
             */
            memory_bytes?: Int64;
            /** @description of a failure of the host */
            message?: string;
            /** Format: int64 */
            milli_cpu?: Int64;
            /** @description beside the workspace */
            mounts?: components["schemas"]["EventMount"][];
            /** @description of the sandbox */
            name?: string;
            /** @enum {string} */
            network?: "none" | "allow" | "open" | "bridge";
            /** Format: int64 */
            output_tokens?: Int64;
            /** @description inside */
            path?: string;
            /** Format: int64 */
            peak_memory_bytes?: Int64;
            /** @description that came in from outside */
            peer?: string;
            /** Format: int64 */
            pids?: Int64;
            /** @description SHA-256 of the effective egress policy as JSON */
            policy_digest?: string;
            /** @description made for a pool */
            pooled?: boolean;
            /** Format: int64 */
            port?: number;
            profile?: string;
            /** @description of an end or a refusal */
            reason?: string;
            /** Format: int64 */
            received_bytes?: Int64;
            /** @description to a route: method and path, without the query */
            request?: string;
            /** @description of the call that led to the event */
            request_id?: string;
            /** @description that decided */
            rule?: string;
            sandbox_id?: string;
            /** Format: int64 */
            sent_bytes?: Int64;
            session?: string;
            /** Format: int32 */
            signal?: number;
            /**
             * Format: uint64
             * @description attempts before this one that have no event
             */
            skipped?: Int64;
            /** @description name */
            snapshot?: string;
            /** @description of the creation */
            stages?: components["schemas"]["Stage"][];
            /**
             * Format: int32
             * @description of its answer
             */
            status?: number;
            /** Format: int64 */
            stderr_bytes?: Int64;
            /**
             * Format: int64
             * @description that the command's pipe took
             */
            stdin_bytes?: Int64;
            /** Format: int64 */
            stdout_bytes?: Int64;
            task?: string;
            /** @description of a move */
            to?: string;
            /** @description inside */
            user?: string;
            /** @enum {string} */
            verdict?: "allowed" | "refused" | "failed" | "cut" | "idle" | "stopped" | "answered" | "empty" | "absent";
            /** @description of the daemon */
            version?: string;
            /** @description name */
            volume?: string;
            /** @description directory of the host */
            workspace?: string;
        };
        /** @description EventInput is an Input of ExecSpec. */
        EventInput: {
            /** Format: int64 */
            bytes?: Int64;
            /** @description inside */
            path?: string;
        };
        /** @description EventMount is a Mount of SandboxSpec. */
        EventMount: {
            cow?: boolean;
            read_only?: boolean;
            /** Format: int64 */
            size_bytes?: OptionalInt64;
            source?: string;
            target?: string;
            type?: string;
        };
        /** @description Exec is one command of a sandbox. */
        Exec: {
            args: string[];
            /** Format: date-time */
            ended_at?: Timestamp;
            /** @description unique in its sandbox, never used again there */
            id: string;
            /**
             * Format: int64
             * @description inside the sandbox
             */
            pid: Int64;
            /** @description when exited */
            result?: components["schemas"]["Result"];
            sandbox_id: string;
            /** Format: date-time */
            started_at?: Timestamp;
            /** @enum {string} */
            state: "starting" | "running" | "exited";
            /** Format: int64 */
            stderr_bytes: Int64;
            /** @description its input is open */
            stdin: boolean;
            /**
             * Format: int64
             * @description written so far
             */
            stdout_bytes: Int64;
            tty: boolean;
        };
        /** @description ExecEvent is one event of a command. */
        ExecEvent: {
            exit?: components["schemas"]["Result"];
            /** @description of StartExecRequest.wait */
            finished?: components["schemas"]["Finished"];
            started?: components["schemas"]["Started"];
            stderr?: components["schemas"]["Output"];
            stdout?: components["schemas"]["Output"];
        };
        /** @description ExecLimits bound a command and all that it starts, by a cgroup of its own inside the sandbox's. */
        ExecLimits: {
            /** Format: int64 */
            memory_bytes?: Int64;
            /** Format: int64 */
            milli_cpu?: Int64;
            /** Format: int64 */
            pids?: Int64;
        };
        /** @description ExecSpec says what to run in a sandbox. */
        ExecSpec: {
            /** @description never through a shell */
            args?: string[];
            /** @description added to the sandbox's */
            env?: {
                [key: string]: string;
            };
            /** @description Files that exist as long as the command runs: 16 at most, of 1 MiB each and 2 MiB together. Their content is kept nowhere and told to nobody. */
            inputs?: components["schemas"]["Input"][];
            /** @description absent: only the sandbox's */
            limits?: components["schemas"]["ExecLimits"];
            /**
             * Format: int64
             * @description per stream; absent is 10 MiB
             */
            output_limit_bytes?: Int64;
            /** @description below the sandbox's */
            rlimits?: components["schemas"]["Rlimit"][];
            /** @description a script for /bin/sh, instead of args */
            shell?: string;
            /** @description the command gets an input, sent with SendInput or StreamInput */
            stdin?: boolean;
            /**
             * @description absent is none
             * @example 90s
             */
            timeout?: Duration;
            /** @description a terminal of this size; absent is none */
            tty?: components["schemas"]["WinSize"];
            /** @description empty is the sandbox's */
            user?: string;
            /** @description absolute; empty is the workspace, else the image's */
            workdir?: string;
        };
        ExplainPolicyRequest: {
            policy?: components["schemas"]["PolicyQuery"];
        };
        ExplainPolicyResponse: {
            /** @description in the order in which they count */
            lines: components["schemas"]["PolicyLine"][];
            /** @enum {string} */
            network: "none" | "allow" | "open" | "bridge";
        };
        /** @description FileEvent is one change (inotify(7)). */
        FileEvent: {
            path: string;
            /** @description as in FileInfo */
            path_bytes: Bytes;
            /** @enum {string} */
            type: "create" | "write" | "remove" | "rename" | "chmod" | "overflow";
        };
        /** @description FileInfo is one entry of a sandbox's file system. */
        FileInfo: {
            /** Format: int64 */
            gid: number;
            /** @description target of a symlink; empty where a listing cannot read it, and for all else */
            link: string;
            /**
             * Format: int64
             * @description permission bits
             */
            mode: number;
            /**
             * Format: date-time
             * @description of the years 1 to 9999: another is told as the nearest of these
             */
            modified_at?: Timestamp;
            /** @description absolute, or below the listed directory */
            path: string;
            /** @description The path where it is not UTF-8, so that two of one path are told apart; else empty. No call takes it, and copies leave it out: such a file is worked on by a command. */
            path_bytes: Bytes;
            /** Format: int64 */
            size_bytes: Int64;
            /** @enum {string} */
            type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
            /**
             * Format: int64
             * @description in the sandbox
             */
            uid: number;
        };
        /** @description Finished is a command that has ended, with its output. Of a stream that is longer than exec.output_limit_bytes, it has the first and the last half. */
        Finished: {
            /** @description of the command */
            id: string;
            result?: components["schemas"]["Result"];
            stderr?: Bytes;
            /** Format: int64 */
            stderr_skipped: Int64;
            stderr_text?: string;
            stdout?: Bytes;
            /**
             * Format: int64
             * @description Bytes that are left out between the first and the last half.
             */
            stdout_skipped: Int64;
            /** @description Instead of stdout and stderr, on the lines of plain HTTP alone: valid UTF-8. */
            stdout_text?: string;
        };
        ForkRequest: {
            /**
             * Format: int64
             * @description 1 to 64; absent is 1
             */
            count?: number;
        };
        ForkResponse: {
            forks: components["schemas"]["Forked"][];
        };
        /** @description Forked is one sandbox that was asked for. */
        Forked: {
            /** @description absent where it did not */
            error?: components["schemas"]["ErrorDetail"];
            /** @description absent where it failed */
            sandbox?: components["schemas"]["Sandbox"];
        };
        FromHostRequest: {
            name?: string;
            packages?: string[];
            paths?: string[];
        };
        HistoryResponse: {
            /** Format: date-time */
            created_at?: Timestamp;
            /** Format: date-time */
            ended_at?: Timestamp;
            /** @description Its last 20 commands, the oldest first, with the first 512 bytes of their arguments. */
            execs: components["schemas"]["Exec"][];
            /** @description Of a sandbox that is gone alone: */
            image: string;
            /** Format: int64 */
            memory_limit_bytes: Int64;
            /** Format: int64 */
            milli_cpu: Int64;
            name: string;
            /** Format: int64 */
            pids_limit: Int64;
            /** @description One each second of the last 5 minutes, each 10 s of the 30 minutes before, each minute of the 3 hours before, and each 10 minutes of the 28 hours before. */
            samples: components["schemas"]["UsageSample"][];
            sandbox_id: string;
            /** @enum {string} */
            state: "creating" | "adopting" | "running" | "paused" | "stopping" | "exited" | "removing" | "removed";
        };
        Image: {
            /** Format: date-time */
            created_at?: Timestamp;
            /** @description what is wrong with the stored copy; empty: nothing */
            damaged: string;
            digest: string;
            name: string;
            /**
             * Format: int64
             * @description uid of the user whose image it is; root's serve everybody. UID+NAME names it too.
             */
            owner: number;
            /** Format: int64 */
            size_bytes: Int64;
            /** @enum {string} */
            source: "oci-layout" | "docker-archive" | "rootfs" | "from-host" | "embedded" | "registry" | "build" | "build-cache";
            /** @description of its manifest, before the filter wrote it anew */
            source_digest: string;
            /** @description that its name led to in the registry; an index, or source_digest */
            target_digest: string;
            /** @description the rule of registries.verify that it was pulled by; empty: none */
            verified: string;
        };
        /** @description ImageProgress is a line of progress, or layers; the last one holds image. With all, each image has one that holds it. */
        ImageProgress: {
            image?: components["schemas"]["Image"];
            /** @description of PullImage, all of them where one has changed */
            layers: components["schemas"]["LayerProgress"][];
            message: string;
            /** @description the registry's image was there already */
            present: boolean;
            /** @description digest of the image of the same name that it replaced; empty: none */
            replaced: string;
            report?: components["schemas"]["ImportReport"];
        };
        ImageUsageResponse: {
            images: components["schemas"]["DiskUsage"][];
            /**
             * Format: int64
             * @description of all these images, shared layers once
             */
            stored_bytes: Int64;
        };
        ImportImageResponse: {
            image?: components["schemas"]["Image"];
            /** @description digest of the image of the same name that it replaced; empty: none */
            replaced: string;
            report?: components["schemas"]["ImportReport"];
        };
        /** @description ImportReport says what the filter did. */
        ImportReport: {
            /** Format: int64 */
            bytes: Int64;
            /** Format: int64 */
            entries: Int64;
            /** @description kind ("device", "setuid", "xattr", …): count */
            stripped: {
                [key: string]: Int64;
            };
        };
        InfoResponse: {
            /** @description Capacity less the limits of live sandboxes, without those in pools. The daemon itself lets limits exceed the host's memory and CPUs; a scheduler should not. */
            available?: components["schemas"]["Resources"];
            /** @description all of the host, or the caller's quota where that is less */
            capacity?: components["schemas"]["Resources"];
            /**
             * Format: int32
             * @description that run
             */
            execs: number;
            /** @description of the live sandboxes that the gateway serves, oldest first */
            networks: components["schemas"]["NetworkStats"][];
            pools: components["schemas"]["PoolStats"][];
            /**
             * Format: int32
             * @description requests that wait to make a sandbox
             */
            queued: number;
            /** @description by state */
            sandboxes: {
                [key: string]: number;
            };
        };
        /** @description Input is a private file for one command, owned by the command's user. */
        Input: {
            data?: Bytes;
            /**
             * Format: int64
             * @description permission bits, with 0400 among them; absent is 0400
             */
            mode?: number;
            /** @description A name is one in /dev/shm/caisson-input. An absolute path lies on a tmpfs of the sandbox, in a directory that exists. Nothing is there yet. */
            path?: string;
        };
        InspectImageResponse: {
            config_json: Bytes;
            image?: components["schemas"]["Image"];
            layers: string[];
            report?: components["schemas"]["ImportReport"];
        };
        InspectResponse: {
            /** @description its TLS clients may encrypt the name that they ask for */
            allow_ech: boolean;
            cgroup: string;
            /** @description absent in the mode none when nothing was tried */
            egress?: components["schemas"]["Egress"];
            /** Format: int64 */
            host_id_base: number;
            /** Format: int64 */
            host_id_size: number;
            image_digest: string;
            limits?: components["schemas"]["Limits"];
            /** @description Why nothing gets out by the gateway at the moment, or in by it; empty while it serves the sandbox. In the mode bridge: why no refusal is recorded, or the bytes of the link are not counted. */
            network_failure: string;
            oci_spec_json: Bytes;
            posture: components["schemas"]["PostureCheck"][];
            /** @description names of its routes */
            routes: string[];
            sandbox?: components["schemas"]["Sandbox"];
        };
        /** @description LayerProgress is how far a layer of a pull is. */
        LayerProgress: {
            digest: string;
            /** Format: int64 */
            received_bytes: Int64;
            /**
             * Format: int64
             * @description as the registry has it
             */
            size_bytes: Int64;
            /** @enum {string} */
            state: "waiting" | "fetching" | "fetched" | "stored" | "present";
        };
        LearnPolicyResponse: {
            /** @description sorted */
            rules: string[];
            /** @description what they may not cover; none where they cover all that was reached */
            warnings: string[];
        };
        /** @description Learned is the smallest policy that would have allowed what a command reached. */
        Learned: {
            /** @description sorted */
            rules: string[];
            /** @description what it may not cover */
            warnings: string[];
        };
        /** @description Leftover is something of the daemon's that no live sandbox owns. */
        Leftover: {
            id: string;
            /**
             * @description "remains" is of a sandbox that ended, and "foreign" is not the daemon's
             * @enum {string}
             */
            kind: "remains" | "sandbox" | "container" | "cgroup" | "output" | "disk" | "snapshot" | "foreign";
            reason: string;
            removed: boolean;
        };
        /** @description Limits bounds a sandbox. An absent field takes the profile's value; zero is an error and never means unlimited. */
        Limits: {
            /**
             * Format: int64
             * @description Weight against other sandboxes while CPUs are short, 2 to 262144, as cpu.shares of cgroup v1. 1024 where neither request nor profile says otherwise.
             */
            cpu_shares?: Int64;
            /**
             * Format: int64
             * @description Size of a file system of the sandbox's own, on the host's disk, with a /workspace that its user may write; 16 MiB to 1 TiB. Where neither request nor profile says, there is none.
             */
            disk_bytes?: Int64;
            /**
             * Format: int64
             * @description Files and directories on it, 256 to one for each 4 KiB; absent is one for each 16 KiB.
             */
            disk_inodes?: Int64;
            /**
             * Format: int64
             * @description Bytes per second that are read from each disk with files of the sandbox, and written to it, at least 65536. Where neither request nor profile says, unbounded. Writes need a host with cgroup v2.
             */
            io_read_bps?: Int64;
            /** Format: int64 */
            io_write_bps?: Int64;
            /** Format: int64 */
            memory_bytes?: Int64;
            /**
             * Format: int64
             * @description 1000 is one CPU
             */
            milli_cpu?: Int64;
            /** Format: int64 */
            open_files?: Int64;
            /**
             * Format: int64
             * @description tasks, that is processes and threads, as the kernel counts
             */
            pids?: Int64;
            /**
             * Format: int64
             * @description of /dev/shm; where neither request nor profile says, that of each tmpfs
             */
            shm_bytes?: Int64;
            /**
             * Format: int64
             * @description of each tmpfs
             */
            tmpfs_bytes?: Int64;
        };
        ListChangesetsResponse: {
            changesets: components["schemas"]["Changeset"][];
            /** @description for the entries after these; empty: there are none */
            next: string;
        };
        ListDirResponse: {
            files: components["schemas"]["FileInfo"][];
            /** @description there are more than the daemon lists */
            truncated: boolean;
        };
        ListExecsResponse: {
            execs: components["schemas"]["Exec"][];
            /** @description for the entries after these; empty: there are none */
            next: string;
        };
        ListImagesResponse: {
            images: components["schemas"]["Image"][];
            /** @description for the entries after these; empty: there are none */
            next: string;
        };
        ListResponse: {
            /** @description for the entries after these; empty: there are none */
            next: string;
            sandboxes: components["schemas"]["Sandbox"][];
        };
        ListSecretsResponse: {
            /** @description by name, at most 64 */
            secrets: components["schemas"]["Secret"][];
        };
        ListSnapshotsResponse: {
            /** @description for the entries after these; empty: there are none */
            next: string;
            snapshots: components["schemas"]["Snapshot"][];
        };
        ListTemplatesResponse: {
            /** @description for the entries after these; empty: there are none */
            next: string;
            /** @description by profile */
            templates: components["schemas"]["Template"][];
        };
        ListVolumesResponse: {
            /** @description for the entries after these; empty: there are none */
            next: string;
            /** @description by name */
            volumes: components["schemas"]["Volume"][];
        };
        MakeDirRequest: {
            /** @description and an existing directory is no error */
            make_parents?: boolean;
            /**
             * Format: int64
             * @description absent: 0755
             */
            mode?: number;
        };
        /** @description Mount is a mount of a sandbox beside its workspace. A target may lie in the workspace or another bind, in which it is an existing directory. */
        Mount: {
            /** @description of a volume, which stays as it is: writes go to the sandbox's disk */
            cow?: boolean;
            /** @description of a bind or volume */
            read_only?: boolean;
            /**
             * Format: int64
             * @description of a tmpfs; absent is limits.tmpfs_bytes
             */
            size_bytes?: Int64;
            /** @description Of a bind: absolute path of a directory or regular file of the host. Of a volume: its name; where the caller has none of it, it is made. Of a snapshot: its name; it is one of a directory, which stays as it is, since writes go to the sandbox's disk. */
            source?: string;
            /** @description where it is mounted inside, absolute */
            target?: string;
            /**
             * @description "bind", "volume", "snapshot" or "tmpfs"
             * @enum {string}
             */
            type?: "bind" | "volume" | "snapshot" | "tmpfs";
        };
        MoveFileRequest: {
            from?: string;
            replace?: boolean;
            to?: string;
        };
        /** @description Nested bounds what a sandbox may give to its children all together. An absent field takes as much again as the sandbox itself has. */
        Nested: {
            /** Format: int64 */
            memory_bytes?: Int64;
            /** Format: int64 */
            milli_cpu?: Int64;
            /** Format: int64 */
            sandboxes?: Int64;
        };
        /** @description NetworkStats is what went through the gateway for one sandbox, or over its link in the mode bridge. */
        NetworkStats: {
            egress?: components["schemas"]["Egress"];
            name: string;
            /** @enum {string} */
            network: "none" | "allow" | "open" | "bridge";
            sandbox_id: string;
        };
        /** @description Output is a part of one stream of a command. */
        Output: {
            data?: Bytes;
            /**
             * Format: int64
             * @description of the first byte in the stream
             */
            offset?: Int64;
            /**
             * Format: int64
             * @description Instead of data: this many bytes are not kept any more. They count in the offsets.
             */
            skipped?: Int64;
            /** @description Instead of data, on the lines of plain HTTP alone: valid UTF-8 that is not mostly control characters. */
            text?: string;
            /**
             * Format: date-time
             * @description With timestamps of LogsRequest alone: when the first byte came. The bytes up to the next time came less than 10 ms later. Of a command that writes for minutes, this is coarser for its older output. Absent: not known.
             */
            time?: Timestamp;
        };
        PingResponse: {
            ready: boolean;
            /** @description why nothing can be run */
            reason: string;
        };
        /** @description PolicyLine is one rule of a policy and what it does, for people. */
        PolicyLine: {
            effect: string;
            rule: string;
        };
        /** @description PolicyQuery names a policy: that of a sandbox, or that which a sandbox would get that is asked for with the other fields, as in SandboxSpec. */
        PolicyQuery: {
            allow?: string[];
            deny?: string[];
            /** @enum {string} */
            network?: "" | "none" | "allow" | "open" | "bridge";
            profile?: string;
            ref?: string;
        };
        /** @description PoolStats is one pool of ready sandboxes. */
        PoolStats: {
            /**
             * Format: int64
             * @description could not be made, or did not pass their checks
             */
            failures: Int64;
            /**
             * Format: int32
             * @description that are being made
             */
            filling: number;
            /** Format: int64 */
            hits: Int64;
            /** @description the profile's where the pool names none */
            image: string;
            /**
             * Format: int32
             * @description to which target may grow
             */
            max: number;
            /** Format: int64 */
            misses: Int64;
            profile: string;
            /** Format: int32 */
            ready: number;
            /**
             * @description median time to make one
             * @example 90s
             */
            refill?: Duration;
            /** Format: int32 */
            size: number;
            /**
             * Format: int32
             * @description how many are to be ready at the moment: size, more after misses
             */
            target: number;
        };
        /** @description Port leads from an address of the host to a port inside of a sandbox. */
        Port: {
            address: string;
            /** @description addresses and CIDRs that may connect; empty is any */
            clients: string[];
            /** Format: int64 */
            host_port: number;
            /**
             * Format: int64
             * @description inside
             */
            port: number;
        };
        /** @description PostureCheck is one comparison of the live sandbox with its declaration. */
        PostureCheck: {
            declared: string;
            live: string;
            name: string;
        };
        PruneImagesRequest: {
            dry_run?: boolean;
            /**
             * @description of them only images that were stored so long ago
             * @example 90s
             */
            until?: Duration;
            /** @description all that nothing needs; else until must be set */
            unused?: boolean;
        };
        PruneImagesResponse: {
            /**
             * Format: int64
             * @description that no other image has, as stored
             */
            freed_bytes: Int64;
            /** @description that were removed, or would be */
            images: components["schemas"]["Image"][];
        };
        PruneVolumesRequest: {
            /** @description only return what would be removed */
            dry_run?: boolean;
        };
        PruneVolumesResponse: {
            /** @description that were removed */
            volumes: components["schemas"]["Volume"][];
        };
        PullImageRequest: {
            /** @description instead of name: the images that profiles and pools name with their registries */
            all?: boolean;
            /** @description for this pull alone */
            credentials?: components["schemas"]["RegistryCredentials"];
            /** @description HOST/PATH[:TAG][@DIGEST] */
            name?: string;
        };
        /** @description Refusal is one destination that was refused. */
        Refusal: {
            code: string;
            /** @description A name, or an address without one. Empty in the mode none: the kernel counts attempts there, and tells no destination. */
            name: string;
            /** @description the rule that would allow it; empty where none can */
            needs: string;
            /**
             * Format: int64
             * @description 0 for a lookup, and for a packet without ports
             */
            port: number;
        };
        /** @description RegistryCredentials are a user's for one registry. */
        RegistryCredentials: {
            /** @description instead of both */
            identity_token?: string;
            password?: string;
            username?: string;
        };
        ReloadConfigResponse: {
            /** @description keys whose new values are in force */
            changed: string[];
            /** @description of the configuration in force, as in the event daemon.started */
            digest: string;
            /** @description keys whose new values need a restart of the daemon */
            needs_restart: string[];
        };
        RemoveFileResponse: Record<string, never>;
        RemoveImageResponse: Record<string, never>;
        RemoveResponse: {
            /** @description ID of the changeset that it left; empty: it left none */
            changeset: string;
            id: string;
        };
        RemoveSecretResponse: Record<string, never>;
        RemoveSnapshotResponse: Record<string, never>;
        RemoveTemplateResponse: Record<string, never>;
        RemoveVolumeResponse: Record<string, never>;
        ResizeExecRequest: {
            size?: components["schemas"]["WinSize"];
        };
        ResizeExecResponse: Record<string, never>;
        /** @description Resources are what sandboxes take of a host. */
        Resources: {
            /**
             * Format: int64
             * @description below the daemon's root, without sandboxes.disk_reserve
             */
            disk_bytes: Int64;
            /** Format: int64 */
            memory_bytes: Int64;
            /**
             * Format: int64
             * @description 1000 is one CPU
             */
            milli_cpu: Int64;
            /** Format: int64 */
            sandboxes: Int64;
        };
        /** @description Result is how a command ended. */
        Result: {
            /**
             * @description What canceled the command, if the reason is "canceled", else empty: "stopped" or "removed" (its sandbox was), "daemon_stopped", "caller_left", "parent_ended" (the sandbox that made its sandbox ended) or "sandbox_ended".
             * @enum {string}
             */
            cause: "" | "stopped" | "removed" | "daemon_stopped" | "caller_left" | "parent_ended" | "sandbox_ended";
            /**
             * @description of the command
             * @example 90s
             */
            duration?: Duration;
            /**
             * Format: int64
             * @description Processes that were ended with the command, which is not one of them: what it had started and left running when its time was over, its call was canceled or its caller went away.
             */
            ended_processes: Int64;
            /** @description of the command in the sandbox, as id of an Exec */
            exec_id: string;
            /**
             * Format: int32
             * @description 128+n on signal n, 124 on timeout, 126, 127
             */
            exit_code: number;
            /** @description where they are mounted inside */
            full_tmpfs: string[];
            /** @description names of volumes with a size */
            full_volumes: string[];
            /** @description absent unless RunSpec.learn */
            learned?: components["schemas"]["Learned"];
            /** @description Of "memory", "pids", "cpu" (it was throttled), "tmpfs", "disk" and "volume" (one was full when the command failed). Of a command of a session without limits of its own, "cpu" is not known, and another command may have filled one. A volume may be full by another sandbox. */
            limits_hit: ("memory" | "pids" | "cpu" | "tmpfs" | "disk" | "volume")[];
            /**
             * Format: int64
             * @description of output that the daemon's disk did not take: no caller has them
             */
            lost_bytes: Int64;
            oom_killed: boolean;
            pids_limit_hit: boolean;
            /** @description A hint: the command failed, and the last 4 KiB of its standard error have the words "Read-only file system". */
            read_only_hint: boolean;
            /**
             * @description "exited", "signaled", "timeout", "oom"; by the runtime "canceled" (the sandbox was stopped or removed, the daemon ended, or the caller went away), "expired" (the sandbox's time was over), "kernel_memory" (the sandbox took too much kernel memory that no limit counts) and "lost" (the sandbox ended without a word).
             * @enum {string}
             */
            reason: "exited" | "signaled" | "timeout" | "oom" | "canceled" | "lost" | "expired" | "kernel_memory";
            /** @description destinations refused while the command ran, at most 10 */
            refusals: components["schemas"]["Refusal"][];
            /**
             * Format: int64
             * @description processes that went on running in the sandbox, by PID 1's word
             */
            remaining: Int64;
            /** @description of the call that brought the result: the header X-Request-Id */
            request_id: string;
            /** @description always there */
            sandbox: components["schemas"]["ResultSandbox"];
            /**
             * Format: int32
             * @description 0: it exited by itself
             */
            signal: number;
            /**
             * @description "command" or "runtime": who decided the end
             * @enum {string}
             */
            source: "" | "command" | "runtime";
            /** @description where the time went, in order */
            stages: components["schemas"]["Stage"][];
            /** Format: int64 */
            stderr_bytes: Int64;
            /**
             * Format: int64
             * @description true totals, also past the limit
             */
            stdout_bytes: Int64;
            timed_out: boolean;
            /** @description the daemon keeps less: a caller that was connected had all */
            truncated: boolean;
            /** @description always there */
            usage: components["schemas"]["ResultUsage"];
            /** @description what was clamped or reported, such as an rlimit */
            warnings: string[];
        };
        /** @description ResultSandbox is the sandbox that a command ran in. */
        ResultSandbox: {
            /** @description so far; absent in the mode none when nothing was tried */
            egress?: components["schemas"]["Egress"];
            id: string;
            /** @description the rule that the image was verified by when it was pulled; empty: none */
            image_verified: string;
            /** @description Of "memory" and "pids": hit in the sandbox while the command ran, by it or by something else that ran there: the kernel does not say. None of them is in Result.limits_hit. */
            limits_hit: ("memory" | "pids")[];
            /**
             * @description the mode
             * @enum {string}
             */
            network: "" | "none" | "allow" | "open" | "bridge";
        };
        /** @description ResultUsage is what a command used. It counts the whole sandbox if that is for this command alone, and else a command with limits of its own. Of other commands of a session, cpu counts the command and the processes that it waited for, and most is not counted. */
        ResultUsage: {
            /**
             * @description user and system, without making and removing the sandbox
             * @example 90s
             */
            cpu?: Duration;
            /**
             * @description Time that the CPU limit held the command back, summed over CPUs. Counted where peak_memory_bytes is; absent is none.
             * @example 90s
             */
            cpu_throttled?: Duration;
            /** Format: int64 */
            cpu_throttled_periods: Int64;
            /**
             * Format: int64
             * @description From and to block devices, where peak_memory_bytes is counted and the host counts them: with cgroup v1 it charges most writes to itself, and io_write_bytes is absent.
             */
            io_read_bytes?: OptionalInt64;
            /** Format: int64 */
            io_write_bytes?: OptionalInt64;
            /**
             * Format: int64
             * @description of the largest process
             */
            max_rss_bytes: Int64;
            /**
             * Format: int64
             * @description absent where it is not counted
             */
            peak_memory_bytes?: OptionalInt64;
        };
        RewindRequest: {
            snapshot?: string;
        };
        RewindResponse: {
            /** @description IDs of the commands that were ended */
            execs: string[];
            /**
             * Format: int32
             * @description all that were ended
             */
            processes: number;
        };
        /** @description Rlimit is one resource limit of setrlimit(2), in its units. 2^64-1 is unlimited. */
        Rlimit: {
            /** Format: uint64 */
            hard?: Int64;
            /** @description any of that call's, such as "nofile" */
            name?: string;
            /** Format: uint64 */
            soft?: Int64;
        };
        /** @description RouteUsage is what requests by one route took together. */
        RouteUsage: {
            /**
             * Format: int64
             * @description of bodies, both ways
             */
            bytes: Int64;
            /**
             * Format: int64
             * @description of input_tokens: from the model's cache
             */
            cached_tokens: Int64;
            /**
             * Format: double
             * @description in the unit of prices
             */
            cost: number;
            /**
             * Format: int64
             * @description whose tokens are an estimate
             */
            estimated_requests: Int64;
            /**
             * Format: int64
             * @description that models read
             */
            input_tokens: Int64;
            /**
             * Format: int64
             * @description that models wrote
             */
            output_tokens: Int64;
            /**
             * Format: int64
             * @description UID
             */
            owner: number;
            profile: string;
            /**
             * Format: int64
             * @description of output_tokens: not part of the answer
             */
            reasoning_tokens: Int64;
            /** Format: int64 */
            requests: Int64;
            route: string;
            /** @description of the scope sandbox */
            sandbox_id: string;
            /** @description of the scope sandbox */
            sandbox_name: string;
            /**
             * @description "sandbox": of one, with those made inside; "session" and "hour": where they have a budget
             * @enum {string}
             */
            scope: "sandbox" | "session" | "hour";
            /** @description but of the scope hour */
            session: string;
            /**
             * Format: int64
             * @description of input_tokens: put into the model's cache
             */
            stored_tokens: Int64;
            /** Format: date-time */
            updated_at?: Timestamp;
        };
        /** @description Rules is a list that may be empty on purpose. */
        Rules: {
            rules?: string[];
        };
        RunRequest: {
            detach?: boolean;
            exec?: components["schemas"]["ExecSpec"];
            /** @description The sandbox stays, as one of Create does, for further commands and for the output and the result of this one. The caller that goes away ends the command alone. Where the command does not start, nothing stays. Not with detach. */
            keep?: boolean;
            /** @description Let the command reach all that is public (the mode "open"), and tell in the result what it reached. Not with detach or keep. */
            learn?: boolean;
            /** @description With learn: let it reach names at private addresses too (RFC 1918, RFC 4193), but at none of the host itself. */
            learn_private?: boolean;
            sandbox?: components["schemas"]["SandboxSpec"];
            /** @description All of the command's input. Absent with exec.stdin: SendInput or StreamInput send it. */
            stdin?: Bytes;
        };
        /** @description Sandbox is one row of List. */
        Sandbox: {
            args: string[];
            /** Format: date-time */
            created_at?: Timestamp;
            /**
             * Format: int32
             * @description commands that run
             */
            execs: number;
            /** Format: date-time */
            exited_at?: Timestamp;
            /**
             * Format: date-time
             * @description by its TTL; absent is never
             */
            expires_at?: Timestamp;
            /** @description ports inside to which links may lead */
            exposed: number[];
            id: string;
            /**
             * Format: date-time
             * @description when the idle timeout is over if nothing happens
             */
            idle_at?: Timestamp;
            /**
             * Format: date-time
             * @description while no command runs; with on_idle "pause" while nothing works inside
             */
            idle_since?: Timestamp;
            /**
             * @description absent is never
             * @example 90s
             */
            idle_timeout?: Duration;
            image: string;
            /**
             * @description "sandbox", or "none": its commands run as a user of the host, with its files and network
             * @enum {string}
             */
            isolation: "" | "sandbox" | "none";
            labels: {
                [key: string]: string;
            };
            /** @description beside the workspace */
            mounts: components["schemas"]["Mount"][];
            name: string;
            /** @enum {string} */
            network: "" | "none" | "allow" | "open" | "bridge";
            /**
             * @description "remove" or "pause"; empty without an idle timeout
             * @enum {string}
             */
            on_idle: "" | "remove" | "pause";
            /**
             * Format: int64
             * @description of the peer that made it
             */
            owner_uid: number;
            /** @description ID of the sandbox that made it */
            parent: string;
            /**
             * @description "caller", or "idle": whoever uses the sandbox wakes it; empty while it is not paused
             * @enum {string}
             */
            paused_by: "" | "caller" | "idle";
            /**
             * Format: int64
             * @description of PID 1 on the host
             */
            pid: Int64;
            /** @description of the host, that lead inside */
            ports: components["schemas"]["Port"][];
            profile: string;
            /** @description of Create alone: ID of the sandbox of that name that this one replaces */
            replaced: string;
            /** @description of the command that it was made for, once that has ended */
            result?: components["schemas"]["Result"];
            session: string;
            /** @enum {string} */
            state: "creating" | "adopting" | "running" | "paused" | "stopping" | "exited" | "removing" | "removed";
            task: string;
            /** @description limits that were lowered, and choices made for the caller */
            warnings: string[];
            workspace?: components["schemas"]["Workspace"];
        };
        /** @description SandboxSpec says what a sandbox is made of and how it is confined. */
        SandboxSpec: {
            /** @description [METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a child: rules that those of its parent cover (else SBX-406), and its parent's where it names none. */
            allow?: string[];
            /** @description Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where a rule depends on it. The profile may say so as well. */
            allow_ech?: boolean;
            /** @description Caches of package managers, by name: cargo, go, maven, npm, nuget, pip or uv, or NAME=PATH for one of another tool, mounted at PATH. Each is the caller's volume caisson-cache-NAME, which many sandboxes read; what one writes goes to its disk. Absent are the profile's. */
            caches?: string[];
            /** @description as allow, beside the profile's; deny beats allow */
            deny?: string[];
            /** @description Resolvers to ask for names, ADDRESS or ADDRESS:PORT, at most 3, among those of network.dns_allowed in the configuration. Absent are those of network.dns. */
            dns?: string[];
            /** @description of all its commands, added to the image's */
            env?: {
                [key: string]: string;
            };
            /** @description Ports inside to which links of the same owner's sandboxes may lead, from 54. */
            expose?: number[];
            /** @description Name of a snapshot. The sandbox begins with a copy of its disk, and has its image, profile, user, env, network policy, limits and labels where the request names none. */
            from?: string;
            /** @description A label of RFC 1123: 1 to 63 letters, digits and - inside. Empty is the sandbox ID. Such a sandbox comes from no pool. */
            hostname?: string;
            /**
             * @description Since no command ran and nobody worked on its files; with on_idle "pause" since nothing worked inside. Zero is never, absent the profile's.
             * @example 90s
             */
            idle_timeout?: Duration;
            /** @description empty is the profile's */
            image?: string;
            labels?: {
                [key: string]: string;
            };
            /** @description Language of the work, such as "python". Without an image here or in the profile, images.languages of the configuration says which image is for it, else it is base. */
            language?: string;
            /** @description how the caller knows, such as the name of a file; the result repeats it */
            language_reason?: string;
            limits?: components["schemas"]["Limits"];
            /** @description NAME=SANDBOX:PORT: NAME, which has no dot, and PORT lead to that port of the sandbox, which exposes it. Such a sandbox is in the mode "allow" or "open". */
            links?: string[];
            /** @description at most 16, beside the workspace */
            mounts?: components["schemas"]["Mount"][];
            /** @description unique; empty is the sandbox ID */
            name?: string;
            /** @description a socket to make sandboxes of its own; absent is none */
            nested?: components["schemas"]["Nested"];
            /**
             * @description "none", "allow", "open", or "bridge" where the operator offers it; empty is "allow" where allow is given, else the profile's. A child of a sandbox has "none" where it names nothing, and "none" or "allow".
             * @enum {string}
             */
            network?: "" | "none" | "allow" | "open" | "bridge";
            /**
             * @description What happens when the sandbox was idle for idle_timeout, which is at least a second for "pause": "remove", or "pause" until somebody uses it. Empty is the profile's, else "remove".
             * @enum {string}
             */
            on_idle?: "" | "remove" | "pause";
            /** @description empty is "strict" */
            profile?: string;
            /** @description [ADDRESS:]PORT:PORT: TCP port of the host and port inside. The address is 127.0.0.1 where none is given; port 0 of the host has a free one picked. */
            publish?: string[];
            /**
             * @description "ro", or "rw": the root can be written, and the sandbox's disk holds what is written. If no limit sizes the disk, sandboxes.disk of the configuration does. Empty is the profile's.
             * @enum {string}
             */
            rootfs?: "" | "ro" | "rw";
            /** @description Names of routes that the profile has on request, beside those of each of its sandboxes. Of a child: routes that its parent has, and no other (else SBX-406). Root also gives routes whole, as NAME={upstream: URL, credential: SECRET}, in YAML or JSON. The keys are those of a route in the configuration. */
            routes?: string[];
            session?: string;
            /** @description Name of a snapshot that is made of the disk when the sandbox ends, whatever ends it. If there is one of that name by then, it is followed by a dash and some letters. */
            snapshot_on_end?: string;
            task?: string;
            /**
             * @description When its time is over a sandbox is ended and removed, paused or not, with the output and the results of its commands. Calls for it then have SBX-107, which says so for as long as the daemon remembers it: 1024 of them, the oldest of whoever had most forgotten first.
             * @example 90s
             */
            ttl?: Duration;
            /** @description name, uid, or uid:gid; empty is the profile's */
            user?: string;
            workspace?: components["schemas"]["Workspace"];
        };
        /** @description SandboxStats is what one sandbox uses. A value that the host does not count is absent. */
        SandboxStats: {
            /**
             * @description since it was made, of all CPUs
             * @example 90s
             */
            cpu?: Duration;
            /**
             * Format: double
             * @description of the last second; 100 is one CPU
             */
            cpu_percent: number;
            /**
             * Format: double
             * @description Percent of the last 10 s in which a process waited for the resource (PSI "some").
             */
            cpu_pressure?: OptionalNumber;
            /** Format: double */
            io_pressure?: OptionalNumber;
            /**
             * Format: int64
             * @description from block devices
             */
            io_read_bytes?: OptionalInt64;
            /**
             * Format: int64
             * @description To block devices. Absent with cgroup v1, which charges most writes to the host.
             */
            io_write_bytes?: OptionalInt64;
            /**
             * Format: int64
             * @description with the page cache
             */
            memory_bytes: Int64;
            /** Format: int64 */
            memory_limit_bytes: Int64;
            /** Format: double */
            memory_pressure?: OptionalNumber;
            /**
             * Format: int64
             * @description limit
             */
            milli_cpu: Int64;
            name: string;
            /** Format: int64 */
            peak_memory_bytes?: OptionalInt64;
            /**
             * Format: int64
             * @description tasks, that is processes and threads, as Limits.pids counts them
             */
            pids: Int64;
            /** Format: int64 */
            pids_limit: Int64;
            /**
             * Format: int64
             * @description PID 1 included
             */
            processes?: OptionalInt64;
            /** Format: int64 */
            received_bytes: Int64;
            sandbox_id: string;
            /**
             * Format: int64
             * @description through its network, as in Egress
             */
            sent_bytes: Int64;
            /** @enum {string} */
            state: "creating" | "adopting" | "running" | "paused" | "stopping" | "exited" | "removing" | "removed";
        };
        SaveImagesRequest: {
            names?: string[];
        };
        /** @description SeccompRule is one reasoned line of a profile. */
        SeccompRule: {
            action: string;
            /** @description empty: unconditional */
            condition: string;
            syscalls: string[];
            why: string;
        };
        /** @description Secret is what may be told of a secret. Its times are absent if it was neither read nor used since the daemon started. */
        Secret: {
            /** @description why the value cannot be read now; empty: it can */
            error: string;
            /** @description it was set by SetSecret, not by the configuration */
            kept: boolean;
            name: string;
            /**
             * Format: date-time
             * @description when the gateway read the value last
             */
            read_at?: Timestamp;
            /**
             * @description of SetSecret; absent: that of the configuration
             * @example 90s
             */
            refresh?: Duration;
            /** @description that use it, as PROFILE/ROUTE */
            routes: string[];
            /** @description Where the value comes from: "file:PATH", "credential:NAME" of systemd, "env:VARIABLE" of the daemon, or "command:PROGRAM", without its arguments. */
            source: string;
            /**
             * Format: date-time
             * @description when a request with it was answered last
             */
            used_at?: Timestamp;
        };
        SendInputRequest: {
            /** @description the input ends after data */
            close?: boolean;
            data?: Bytes;
            /**
             * Format: int64
             * @description Of the first byte of data in the command's whole input. Absent: after the bytes that the command has. An offset past those is refused.
             */
            offset?: Int64;
        };
        SendInputResponse: {
            /** @description The input is closed. Bytes past the offset are dropped where the command closed it, or has ended. */
            closed: boolean;
            /**
             * Format: int64
             * @description bytes of input that the command has
             */
            offset: Int64;
        };
        SetSecretRequest: {
            /**
             * @description After which the value is read again, at least 1s; absent: as the configuration has it.
             * @example 90s
             */
            refresh?: Duration;
            /** @description "file:PATH" of root's alone, "credential:NAME" of systemd, or "command:PROGRAM ARGUMENTS", which is run once and on each reload. */
            source?: string;
        };
        SignalExecRequest: {
            /** @description to every process that the command started */
            all?: boolean;
            /** @description a name or number, such as "TERM", "SIGTERM" or "15" */
            signal?: string;
        };
        SignalExecResponse: Record<string, never>;
        Snapshot: {
            /** Format: date-time */
            created_at?: Timestamp;
            /**
             * Format: int64
             * @description size of the disk
             */
            disk_bytes: Int64;
            image: string;
            image_digest: string;
            name: string;
            /**
             * Format: int64
             * @description uid of the user to whom it belongs; root may name it UID+NAME
             */
            owner: number;
            /** @description The directory of the sandbox that it has, to be mounted in others; empty: it has the disk, to begin others with. */
            path: string;
            /**
             * @description "rw": it has what was written to the root; "ro": /workspace alone
             * @enum {string}
             */
            rootfs: "ro" | "rw";
            /** @description of which it was made */
            sandbox_id: string;
            sandbox_name: string;
            /**
             * Format: int64
             * @description that files take on it
             */
            used_bytes: Int64;
        };
        SpecRequest: {
            detach?: boolean;
            exec?: components["schemas"]["ExecSpec"];
            /** @description The sandbox stays, as one of Create does, for further commands and for the output and the result of this one. The caller that goes away ends the command alone. Where the command does not start, nothing stays. Not with detach. */
            keep?: boolean;
            /** @description Let the command reach all that is public (the mode "open"), and tell in the result what it reached. Not with detach or keep. */
            learn?: boolean;
            /** @description With learn: let it reach names at private addresses too (RFC 1918, RFC 4193), but at none of the host itself. */
            learn_private?: boolean;
            sandbox?: components["schemas"]["SandboxSpec"];
            /** @description return seccomp_pfc too, which takes some milliseconds */
            seccomp_pfc?: boolean;
        };
        SpecResponse: {
            /** @description file: value */
            cgroup_values: {
                [key: string]: string;
            };
            /** @description one line each, as a person reads them */
            mounts: string[];
            network_rules: string[];
            oci_spec_json: Bytes;
            /** @description the compiled filter as libseccomp's pseudo filter code */
            seccomp_pfc: string;
            seccomp_profile: string;
            seccomp_rules: components["schemas"]["SeccompRule"][];
        };
        /** @description Stage is one step of the making of a sandbox. */
        Stage: {
            /** @example 90s */
            duration?: Duration;
            name?: string;
        };
        StartExecRequest: {
            /** @description not with wait */
            attach?: boolean;
            exec?: components["schemas"]["ExecSpec"];
            /** @description All of the command's input, with wait or attach. Absent with exec.stdin: SendInput or StreamInput send it, but with wait there is none. It is sent while the stream is open: after Attach, send it again with SendInput, from offset 0. Bytes that the command has are not sent twice. */
            stdin?: Bytes;
            /** @description not with exec.tty, and exec.output_limit_bytes is 64 MiB at most */
            wait?: boolean;
        };
        /** @description Started says that the command runs. */
        Started: {
            /** @description absent after Run with detach */
            exec?: components["schemas"]["Exec"];
            sandbox_id: string;
            sandbox_name: string;
            /** @description of the sandbox, as in Sandbox */
            warnings: string[];
        };
        StatsResponse: {
            /** @description oldest first */
            sandboxes: components["schemas"]["SandboxStats"][];
            /** Format: date-time */
            time?: Timestamp;
        };
        StopRequest: {
            /**
             * @description between TERM and KILL; absent is the daemon's
             * @example 90s
             */
            grace?: Duration;
        };
        TagImageRequest: {
            name?: string;
            new_name?: string;
        };
        TagImageResponse: {
            image?: components["schemas"]["Image"];
            /** @description digest of the image of the same name that it replaced; empty: none */
            replaced: string;
        };
        Template: {
            /** @description name of the image that it begins with */
            base: string;
            /**
             * Format: date-time
             * @description end of the last build; absent: there was none
             */
            built_at?: Timestamp;
            /** @description why it failed, or cannot begin */
            error: string;
            /** @description of a ready one */
            image?: components["schemas"]["Image"];
            /** @description SHA-256 of all that goes into it */
            key: string;
            /** @description of the last build; absent in lists */
            log: string;
            profile: string;
            /**
             * @description "ready", "building", "failed", "absent"
             * @enum {string}
             */
            state: "ready" | "building" | "failed" | "absent";
            /**
             * @description that build
             * @example 90s
             */
            took?: Duration;
        };
        /** @description TemplateProgress is progress, or the template at the end. */
        TemplateProgress: {
            progress?: components["schemas"]["BuildProgress"];
            template?: components["schemas"]["Template"];
        };
        /** @description TrafficResponse is one attempt and what became of it. */
        TrafficResponse: {
            /** @description that was connected to, or that was meant where there is no name */
            address: string;
            /** @description of what was refused or failed */
            code: string;
            /** Format: double */
            cost: number;
            /** @description for since; it outlives the daemon; empty of a gap */
            cursor: string;
            /** @example 90s */
            duration?: Duration;
            /** Format: int64 */
            input_tokens: Int64;
            /**
             * @description "connection"; "lookup"; "link"; "inbound", which came to a published port; "packet", of another protocol than TCP, which is refused; "request", to a route. In the mode bridge only refusals have entries. "gap" is no attempt: entries that were here are no longer kept, which ones is the reason.
             * @enum {string}
             */
            kind: "connection" | "lookup" | "link" | "inbound" | "packet" | "request" | "gap";
            /** @description Of a request to a model whose answer told: tokens and their cost, in the unit of prices. */
            model: string;
            /** @description empty for an address without a name */
            name: string;
            /** @description Rule that would allow a refused attempt under the current policy; empty if none can. */
            needs: string;
            /** Format: int64 */
            output_tokens: Int64;
            /** @description of inbound: the address and port that it came from */
            peer: string;
            /**
             * Format: int64
             * @description of inbound: inside; 0 for a packet without ports
             */
            port: number;
            reason: string;
            /** Format: int64 */
            received_bytes: Int64;
            /** @description that caused the verdict */
            rule: string;
            sandbox_id: string;
            /** Format: int64 */
            sent_bytes: Int64;
            /**
             * Format: uint64
             * @description attempts before this one that have no record
             */
            skipped: Int64;
            /**
             * Format: date-time
             * @description when it began
             */
            time?: Timestamp;
            /** @description of a lookup: "A"; of a packet: "udp", "icmp" and others; of a request: "GET /path" */
            type: string;
            /**
             * @description Of a connection, packet, link or inbound: "allowed", "refused", "failed", "cut", "idle", "stopped". Of a lookup: "answered", "empty", "absent", "refused", "failed".
             * @enum {string}
             */
            verdict: "" | "allowed" | "refused" | "failed" | "cut" | "idle" | "stopped" | "answered" | "empty" | "absent";
        };
        UpdateRequest: {
            allow?: components["schemas"]["Rules"];
            /**
             * Format: int64
             * @description as in Limits
             */
            cpu_shares?: Int64;
            deny?: components["schemas"]["Rules"];
            /**
             * @description zero is never
             * @example 90s
             */
            idle_timeout?: Duration;
            /**
             * Format: int64
             * @description As in Limits; 0 takes a rate away.
             */
            io_read_bps?: Int64;
            /** Format: int64 */
            io_write_bps?: Int64;
            /** @description merged; an empty value removes the label */
            labels?: {
                [key: string]: string;
            };
            /** Format: int64 */
            memory_bytes?: Int64;
            /** Format: int64 */
            milli_cpu?: Int64;
            /**
             * @description Replace those of the request that made the sandbox; absent keeps them. What is open and no longer allowed is cut. The policies of its children follow. Those of a child stay within its parent's.
             * @enum {string}
             */
            network?: "allow" | "open";
            /**
             * @description as in SandboxSpec
             * @enum {string}
             */
            on_idle?: "remove" | "pause";
            /** Format: int64 */
            pids?: Int64;
            /** @description The published ports as they are open, all of them, with other clients: ADDRESS:PORT:PORT@CIDR+CIDR, and any may connect without @. Connections of others are cut. */
            publish?: components["schemas"]["Rules"];
            /**
             * @description from now; zero is never
             * @example 90s
             */
            ttl?: Duration;
        };
        UsageResponse: {
            /** @description there are more: ask again with it; empty: this is the end */
            next: string;
            /** @description by scope */
            usages: components["schemas"]["RouteUsage"][];
        };
        /** @description UsageSample is the use of a sandbox since the sample before. */
        UsageSample: {
            /**
             * Format: double
             * @description mean; 100 is one CPU
             */
            cpu_percent: number;
            /** Format: int64 */
            io_read_bytes: Int64;
            /**
             * Format: int64
             * @description 0 with cgroup v1
             */
            io_write_bytes: Int64;
            /**
             * Format: int64
             * @description the most
             */
            memory_bytes: Int64;
            /**
             * Format: int64
             * @description the most tasks, as in SandboxStats
             */
            pids: Int64;
            /** Format: int64 */
            received_bytes: Int64;
            /** Format: int64 */
            sent_bytes: Int64;
            /**
             * Format: date-time
             * @description of its end
             */
            time?: Timestamp;
        };
        VersionResponse: {
            commit: string;
            containerd: string;
            containerd_address: string;
            go_version: string;
            instance: string;
            root: string;
            runc: string;
            version: string;
        };
        Volume: {
            /** Format: date-time */
            created_at?: Timestamp;
            /**
             * Format: int64
             * @description files and directories that it can hold; 0: nothing bounds them
             */
            inodes: Int64;
            name: string;
            /**
             * Format: int64
             * @description uid of the user to whom it belongs; root may name it UID+NAME
             */
            owner: number;
            /**
             * Format: int64
             * @description What it can hold, with what its file system needs; 0: nothing bounds it.
             */
            size_bytes: Int64;
            /** @description names of sandboxes that use it */
            used_by: string[];
            /**
             * Format: int64
             * @description How much of its size and inodes is used, with what its file system needs; 0 without a size.
             */
            used_bytes: Int64;
            /** Format: int64 */
            used_inodes: Int64;
        };
        WatchFilesResponse: {
            event?: components["schemas"]["FileEvent"];
            /** @description the first message: changes from now on are reported */
            ready?: boolean;
        };
        /** @description WinSize is the size of a terminal in characters, 1 to 65535 each. */
        WinSize: {
            /** Format: int64 */
            cols?: number;
            /** Format: int64 */
            rows?: number;
        };
        /** @description Workspace is a directory of the host, bound into the sandbox. With the mode "cow" the host's directory never changes, and writes go to the sandbox's disk. With "clone" it is a git clone of the host's repository, on that disk. If neither the request nor the profile names a disk, the sandbox gets one of the default size. */
        Workspace: {
            /** @description absolute path on the host; to a caller in a sandbox, in its own workspace */
            dir?: string;
            /**
             * @description "rw", "ro", "cow" or "clone"; empty is "rw"
             * @enum {string}
             */
            mode?: "" | "rw" | "ro" | "cow" | "clone";
            /** @description where it is mounted inside, absolute; empty is /workspace */
            path?: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
