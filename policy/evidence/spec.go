package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// schemaSpec is the format of spec.json that is understood here. The runner owns
// the type; this package may not import it, so it reads the fields that it can
// hold to a contract, and leaves the others to the digest.
const schemaSpec = "countersign/spec/v1"

type spec struct {
	Schema      string             `json:"schema"`
	Image       string             `json:"image"`
	Isolation   contract.Isolation `json:"isolation"`
	UID         int                `json:"uid"`
	Workdir     string             `json:"workdir"`
	Entrypoint  []string           `json:"entrypoint"`
	Mounts      []mount            `json:"mounts"`
	MaskedPaths []string           `json:"masked_paths"`
	MemoryBytes int64              `json:"memory_bytes"`
	NanoCPUs    int64              `json:"nano_cpus"`
	Pids        int64              `json:"pids"`
	ShmBytes    int64              `json:"shm_bytes"`
	Seccomp     string             `json:"seccomp"`
	Labels      map[string]string  `json:"labels"`
}

type mount struct {
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	Bytes    int64  `json:"bytes"`
	Inodes   int64  `json:"inodes"`
}

// Places inside every sandbox; the two binds are the shim's.
const (
	shimPath     = "/countersign/shim"
	shimDir      = "/countersign"
	socketDir    = "/run/countersign"
	workspaceDir = "/workspace"
	homeDir      = "/home/agent"
	tmpDir       = "/tmp"
	shmDir       = "/dev/shm"
	secretDir    = "/run/secret" // only with secrets as files
	secretMB     = 4
	labelSandbox = "countersign.sandbox"
	mib          = 1 << 20
)

// spec holds the container that was ordered to the contract it was ordered for.
func (v *verifier) spec() {
	p := v.statement.Predicate
	if p.Spec == "" || len(v.contracts) == 0 {
		return
	}
	data, err := v.readSmall(ledger.FileSpec)
	if err == nil && contract.DigestBytes(data) != p.Spec {
		err = fmt.Errorf("its digest is %s, %s was signed", contract.DigestBytes(data), p.Spec)
	}
	var s spec
	if err == nil {
		err = decodeLoosely(data, &s)
	}
	if !v.check("spec", err, "%s", p.Spec) {
		return
	}
	c := v.contracts[len(v.contracts)-1].Contract()
	v.check("spec and contract", v.obeys(s, c), "image, isolation and limits are the contract's")
	v.check("spec and roots", roots(s, c), "only the contract's roots can be written")
	v.check("spec and denied paths", denied(s, c), "what an image could hold of them is masked")
	v.check("contract in time", v.inTime(c), "until %s", c.NotAfter)
	v.check("spec and statement", v.repeats(s), "mounts and seccomp are those that were signed")
}

// decodeLoosely ignores keys that are not read here, but no trailing bytes.
func decodeLoosely(data []byte, s *spec) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(s); err != nil {
		return err
	}
	if dec.More() {
		return fmt.Errorf("there is more after the document")
	}
	if s.Schema != schemaSpec {
		return fmt.Errorf("its schema is %q, expected %s", s.Schema, schemaSpec)
	}
	return nil
}

func (v *verifier) obeys(s spec, c contract.Contract) error {
	var wrong []string
	for _, f := range []struct {
		what      string
		got, want any
	}{
		{"isolation", s.Isolation, c.Isolation},
		{"workdir", s.Workdir, c.Workdir},
		{"memory", s.MemoryBytes, c.Limits.MemoryMB * mib},
		{"cpu", s.NanoCPUs, int64(c.Limits.CPU * 1e9)},
		{"pids", s.Pids, c.Limits.Pids},
		{"shm", s.ShmBytes, c.Limits.ShmMB * mib},
		{"sandbox", s.Labels[labelSandbox], v.sandboxName(c.RunID)},
		{"entrypoint", strings.Join(s.Entrypoint, " "), shimPath + " init"},
	} {
		if f.got != f.want {
			wrong = append(wrong, fmt.Sprintf("%s is %v, expected %v", f.what, f.got, f.want))
		}
	}
	if s.UID <= 0 {
		wrong = append(wrong, fmt.Sprintf("uid is %d, expected an unprivileged one", s.UID))
	}
	if !v.pinned(s.Image, c.Image) {
		wrong = append(wrong, fmt.Sprintf("image is %s, which is not the contract's %s", s.Image, c.Image.Digest))
	}
	return problems(wrong)
}

// sandboxName is what the container must be labelled with: the run it was made
// for, or the name of the one that the ledger says was taken.
func (v *verifier) sandboxName(runID string) string {
	for _, r := range v.records {
		var data struct {
			Sandbox string `json:"sandbox"`
		}
		if r.Type == ledger.TypeTaken && json.Unmarshal(r.Data, &data) == nil {
			return data.Sandbox
		}
	}
	return runID
}

// pinned reports whether an image id is the one that the contract names: by
// itself, or as the snapshot saw its manifest digest.
func (v *verifier) pinned(id string, image contract.Image) bool {
	if image.DigestKind == contract.DigestImageID {
		return id == image.Digest
	}
	fact, ok := v.snapshot.Images[image.Ref]
	return ok && fact.ID == id && slices.ContainsFunc(fact.RepoDigests, func(d string) bool {
		return strings.HasSuffix(d, "@"+image.Digest)
	})
}

// roots wants every mount to be one that a sandbox has, sized as the contract
// says, and writable only where the contract has a writable root.
func roots(s spec, c contract.Contract) error {
	sizes := map[string]int64{workspaceDir: c.Limits.DiskMB, homeDir: c.Limits.HomeMB, tmpDir: c.Limits.TmpMB}
	writable := map[string]bool{}
	for _, r := range c.WritableRoots {
		writable[r.Path] = true
	}
	for _, s := range c.SecretRefs {
		if s.Deliver == contract.DeliverFile {
			sizes[secretDir], writable[secretDir] = secretMB, true
		}
	}
	var wrong []string
	seen := map[string]bool{shmDir: true} // by the limit of shared memory
	for _, m := range s.Mounts {
		size, sized := sizes[m.Target]
		switch {
		case seen[m.Target]:
			wrong = append(wrong, m.Target+" is mounted twice")
		case m.Kind == "bind" && (m.Target != shimDir && m.Target != socketDir || !m.ReadOnly):
			wrong = append(wrong, m.Target+" is a directory of the host")
		case m.Kind == "bind":
		case !sized:
			wrong = append(wrong, m.Target+" is not a place of a sandbox")
		case m.Bytes != size*mib:
			wrong = append(wrong, fmt.Sprintf("%s has %d bytes, expected %d", m.Target, m.Bytes, size*mib))
		case m.Target == workspaceDir && m.Inodes != c.Limits.Files:
			wrong = append(wrong, fmt.Sprintf("%s has %d inodes, expected %d", m.Target, m.Inodes, c.Limits.Files))
		case !m.ReadOnly && !writable[m.Target]:
			wrong = append(wrong, m.Target+" can be written, but is no writable root")
		}
		seen[m.Target] = true
	}
	for _, r := range c.WritableRoots {
		if !seen[r.Path] {
			wrong = append(wrong, r.Path+" is a writable root, but is not mounted")
		}
	}
	return problems(wrong)
}

// denied wants every denied path masked, but for those in places that begin
// empty or, in the workspace, are not delivered.
func denied(s spec, c contract.Contract) error {
	var wrong []string
	for _, p := range c.ReadDenied {
		inside := slices.ContainsFunc([]string{workspaceDir, homeDir, tmpDir, shmDir}, func(dir string) bool {
			return p == dir || strings.HasPrefix(p, dir+"/")
		})
		if !inside && !slices.Contains(s.MaskedPaths, p) {
			wrong = append(wrong, p+" is denied, but not masked")
		}
	}
	return problems(wrong)
}

// inTime wants the container to have been ordered while the contract could be
// started, by the ledger's clock.
func (v *verifier) inTime(c contract.Contract) error {
	until, err := contract.ParseTime(c.NotAfter)
	if err != nil {
		return err
	}
	for _, r := range v.records {
		at, err := time.Parse(time.RFC3339Nano, r.Time)
		ordered := r.Type == ledger.TypeCreating || r.Type == ledger.TypeTaken
		if ordered && (err != nil || at.After(until)) {
			return fmt.Errorf("the container was ordered at %s, the contract ended at %s", r.Time, c.NotAfter)
		}
	}
	return nil
}

// repeats compares what the statement repeats of the spec.
func (v *verifier) repeats(s spec) error {
	p := v.statement.Predicate
	var mounts []ledger.Mount
	for _, m := range s.Mounts {
		mounts = append(mounts, ledger.Mount(m))
	}
	switch {
	case !slices.Equal(mounts, p.Mounts):
		return fmt.Errorf("the mounts differ: %+v, signed were %+v", mounts, p.Mounts)
	case s.Seccomp != p.Engine.SeccompDigest:
		return fmt.Errorf("the seccomp profile is %s, signed was %s", s.Seccomp, p.Engine.SeccompDigest)
	}
	return nil
}
