package seccomp

// ipcRules: processes of one sandbox among themselves. The ipc namespace is their own.
var ipcRules = []Rule{
	{
		Syscalls: fields(`futex futex_waitv`),
		Allow:    true,
		Why:      "locks: every threaded program; futex_waitv (Linux 5.16) waits for several",
	},
	{
		Syscalls: fields(`futex_wake futex_wait futex_requeue`),
		Allow:    true,
		Optional: true,
		Why:      "the parts of futex as calls of their own (Linux 6.7)",
	},
	{
		Syscalls: fields(`shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl`),
		Allow:    true,
		Why:      "System V objects: PostgreSQL, Python's multiprocessing on old systems, X clients",
	},
	{
		Syscalls: fields(`mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`),
		Allow:    true,
		Why:      "POSIX message queues; RLIMIT_MSGQUEUE bounds them",
	},
}
