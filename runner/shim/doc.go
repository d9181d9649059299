// Package shim is what runs inside a sandbox before, beside and after the
// workload: PID 1 of the container ([Init]), the process that keeps a workspace
// volume alive ([Hold]), and the child that tries what must fail ([TakeProbe]).
//
// Where a contract has a way out, PID 1 is also the sandbox's name server and
// the near end of that way:
//
//	name ─ 127.0.0.1:53 ─▶ an address of 127.64.0.0/10, that name's alone
//	connection to it ─ "CONNECT name:port" ─▶ the proxy's Unix socket
//
// It decides nothing. It obeys the supervisor on the host, to which it dials
// out over one Unix socket, and reports what it saw. The package protocol has
// the messages; policy stays outside.
//
// What always holds:
//
//   - PID 1 is not dumpable before it reads its first message, so a process of
//     the same uid can neither trace it nor read its memory, environment or
//     descriptors (prctl(2), PR_SET_DUMPABLE; ptrace(2), "access mode checks").
//   - A workload gets exactly the environment, directory and arguments of its
//     job, /dev/null as its input, two pipes, and no other descriptor.
//   - When Exited is sent, PID 1 is the only process of the sandbox: whatever
//     the workload left behind had a short grace and was killed and reaped.
//   - Without its control connection nothing goes on: everything is killed and
//     PID 1 exits with 125, which ends every process of the name space.
//
// It never listens but on loopback, never sends a name anywhere but in a CONNECT,
// never reads the image's configuration, never trusts a clock for more than its
// own deadline, and never needs a new thread while a workload runs: a fork bomb
// may hold every task that the sandbox may have.
package shim
