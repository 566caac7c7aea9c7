package seccomp

// timeRules: reading clocks and waiting. Setting a clock is in no rule.
var timeRules = []Rule{
	{
		Syscalls: fields(`clock_gettime clock_getres gettimeofday clock_nanosleep nanosleep`),
		Allow:    true,
		Why:      "reading clocks, where the vDSO does not do it, and sleeping",
	},
	{
		Syscalls: fields(`time`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "older form of clock_gettime",
	},
	{
		Syscalls: fields(`getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
			timerfd_create timerfd_settime timerfd_gettime`),
		Allow: true,
		Why:   "timers: event loops, profilers of the own process; RLIMIT_SIGPENDING bounds them per host id",
	},
}
