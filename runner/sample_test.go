package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

func digestOf(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// sample is a contract that this build can run.
func sample() contract.Contract {
	return contract.Contract{
		Schema: contract.SchemaContract, RunID: "run_01kb7v2q8tn4yfpm6s0ehr3wxd", Revision: 1,
		Repo: contract.Repo{FullName: "local/api"}, Base: contract.Ref{Ref: "main", SHA: strings.Repeat("a", 40)},
		Head: contract.Head{SHA: strings.Repeat("b", 40)}, Start: contract.Start{SHA: strings.Repeat("b", 40)},
		RequestedBy:    contract.Person{Login: "local", Role: contract.RoleLocal},
		Policy:         contract.PolicyRef{Rev: "p-1", Ref: "builtin", Digest: digestOf("1"), CeilingDigest: digestOf("2")},
		SnapshotDigest: digestOf("3"),
		ExecutionClass: contract.ClassWorkspaceSandbox, Isolation: contract.IsolationRunc, Level: contract.L1,
		Argv: []string{"make", "test"}, Env: map[string]string{"CI": "1"},
		Image:   contract.Image{Ref: "countersign/sandbox:latest", Digest: digestOf("4"), DigestKind: contract.DigestImageID},
		Workdir: "/workspace", WritableRoots: []contract.Root{{Path: "/dev/shm"}, {Path: "/home/agent"}, {Path: "/tmp"}, {Path: "/workspace"}},
		ReadDenied: []string{"/home/agent/.ssh", "/var/run/secrets", "/workspace/deploy/keys"},
		Network:    contract.Network{Mode: contract.NetworkNone},
		Limits: contract.Limits{CPU: 1.5, MemoryMB: 1024, Pids: 128, DiskMB: 256, HomeMB: 64, TmpMB: 32, ShmMB: 16,
			Files: 5000, LogMB: 4, TimeoutSec: 60, WaitSec: 0},
		Outputs:  contract.Outputs{Kind: contract.OutputPatch, Push: contract.PushNever, MaxFiles: 100, MaxBytes: 1 << 20},
		NotAfter: "2026-11-29T13:00:00Z",
	}
}

func sealed(t testing.TB, c contract.Contract) contract.Sealed {
	t.Helper()
	s, err := contract.Seal(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place() Placement {
	return Placement{
		Sandbox: sample().RunID,
		UID:     1_234_567, RunDir: "/var/lib/countersign/run", State: "run_01kb7v2q8tn4yfpm6s0ehr3wxa", SocketDir: "/var/lib/countersign/run/s", ShimDir: "/var/lib/countersign/shim/1",
		Engine: EngineFacts{SeccompDigest: digestOf("5"), MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"}},
		Image:  contract.ImageFact{ID: digestOf("4"), EnvKeys: []string{"PATH", "LD_PRELOAD", "FOO"}},
		Now:    time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
	}
}
