package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// verifier holds one verification while it goes on.
type verifier struct {
	fsys    fs.FS
	trusted []ed25519.PublicKey
	report  Report

	files      map[string]string // what is on disk: digest by name
	statement  ledger.Statement
	records    []ledger.Record
	incomplete bool
	reached    string // what an incomplete bundle got to

	task      contract.Task
	snapshot  contract.Snapshot
	contracts []contract.Sealed
}

// run makes every check that the ones before it allow.
func (v *verifier) run() {
	var err error
	if v.files, err = ledger.FilesOf(v.fsys); !v.check("bundle", err, "%d files", len(v.files)) {
		return
	}
	if _, err := fs.Stat(v.fsys, ledger.FileEvidence); errors.Is(err, fs.ErrNotExist) {
		v.unfinished()
		return
	}
	if !v.envelope() {
		return
	}
	v.report.RunID = v.statement.Predicate.RunID
	v.everyFile()
	v.emptyDirectories()
	v.layout()
	v.subject()
	v.ledgerChain()
	if v.inputs() && v.openContracts() {
		v.derivation()
		v.revisions()
		v.spec()
		v.egress()
	}
	v.outcome()
}

// unfinished says how far a run without a signed statement got.
func (v *verifier) unfinished() {
	v.incomplete = true
	v.add(ledger.FileEvidence, false, "there is none")
	if _, ok := v.files[ledger.FileLedger]; !ok {
		v.reached = "and no ledger"
		return
	}
	head, records, err := v.readLedger()
	v.check("ledger chain", err, "%d records", head.Records)
	v.reached = "its ledger is empty"
	if n := len(records); n > 0 {
		last := records[n-1]
		v.report.RunID = records[0].Run
		v.reached = fmt.Sprintf("its ledger got to record %d, %s at %s", n, last.Type, last.Time)
	}
}

// envelope opens evidence.json with the trusted keys, or with the key that the
// bundle itself names.
func (v *verifier) envelope() bool {
	data, err := v.readSmall(ledger.FileEvidence)
	if !v.check("envelope", err, "%d bytes", len(data)) {
		return false
	}
	own, err := v.signer()
	if !v.check("signer.pem", err, "one Ed25519 public key") {
		return false
	}
	keys := v.trusted
	if len(keys) == 0 {
		keys = []ed25519.PublicKey{own}
	}
	v.statement, v.report.KeyID, err = ledger.OpenEnvelope(data, keys)
	if errors.Is(err, ledger.ErrUntrusted) && len(v.trusted) > 0 {
		return v.add("signature", false, "signed by another key than those given: %s", v.report.KeyID)
	}
	if !v.check("signature", err, "signed by %s", v.report.KeyID) {
		return false
	}
	id, err := ledger.KeyID(own)
	if err == nil && id != v.report.KeyID {
		err = fmt.Errorf("signer.pem holds the key %s, but %s signed", id, v.report.KeyID)
	}
	v.check("signer", err, "signer.pem is the key that signed")
	return true
}

func (v *verifier) signer() (ed25519.PublicKey, error) {
	text, err := v.readSmall(ledger.FileSigner)
	if err != nil {
		return nil, err
	}
	keys, err := ledger.ParsePublicKeys(text)
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("it holds %d keys, expected one", len(keys))
	}
	return keys[0], nil
}

// everyFile compares what is on disk with what was signed: one line a file.
func (v *verifier) everyFile() {
	signed := v.statement.Predicate.Files
	names := slices.Sorted(maps.Keys(signed))
	for name := range v.files {
		if _, ok := signed[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names[len(signed):])
	for _, name := range names {
		want, expected := signed[name]
		have, present := v.files[name]
		switch {
		case !expected:
			v.add("file "+name, false, "was added: the statement does not name it")
		case !present:
			v.add("file "+name, false, "is missing")
		case have != want:
			v.add("file "+name, false, "was changed: its digest is %s, %s was signed", have, want)
		default:
			v.add("file "+name, true, "%s", have)
		}
	}
}

// emptyDirectories finds what digests of files do not show: a directory of a
// bundle is made for a file in it.
func (v *verifier) emptyDirectories() {
	err := fs.WalkDir(v.fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || name == "." {
			return err
		}
		for file := range v.files {
			if strings.HasPrefix(file, name+"/") {
				return nil
			}
		}
		v.add("directory "+name, false, "was added: no file is in it")
		return fs.SkipDir
	})
	if err != nil {
		v.check("directories", err, "")
	}
}

// layout holds the signed names to those that a bundle of this version has.
func (v *verifier) layout() {
	p := v.statement.Predicate
	expected := []string{
		ledger.FileTask, ledger.FileSnapshot, ledger.FilePolicy, ledger.FileCeiling,
		ledger.FileLedger, ledger.FileOutput, ledger.FilePatch, ledger.FileSigner,
	}
	for i := range p.Contracts {
		expected = append(expected, ledger.ContractFile(i+1))
	}
	if p.Spec != "" {
		expected = append(expected, ledger.FileSpec)
	}
	var wrong []string
	for _, name := range expected {
		if _, ok := p.Files[name]; !ok {
			wrong = append(wrong, name+" is not in it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		dir, _, _ := strings.Cut(name, "/")
		switch {
		case dir == ledger.DirPromotions || dir == ledger.DirDecisions:
			wrong = append(wrong, name+" cannot be judged by this version, which knows no promotions")
		case !slices.Contains(expected, name):
			wrong = append(wrong, name+" is not a file of a bundle")
		}
	}
	if n := len(p.Promotions) + len(p.Decisions); n > 0 {
		wrong = append(wrong, fmt.Sprintf("it names %d promotions and decisions, which this version cannot judge", n))
	}
	v.check("layout", problems(wrong), "%d files, all of a bundle", len(p.Files))
}

// problems is nil for none.
func problems(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

func (v *verifier) subject() {
	digest := "sha256:" + v.statement.Subject[0].Digest["sha256"]
	v.same("subject", "the signed patch's digest", digest, v.files[ledger.FilePatch])
}

// maxSmall bounds the files that are read whole.
const maxSmall = contract.MaxDocument

// readSmall reads a file whole and holds it to the digest that was taken of it
// before, so that all checks speak of the same bytes.
func (v *verifier) readSmall(name string) ([]byte, error) {
	f, err := v.fsys.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New(name + " is missing")
		}
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSmall {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSmall)
	}
	if want, ok := v.files[name]; ok && contract.DigestBytes(data) != want {
		return nil, errors.New(name + " changed while it was read")
	}
	return data, nil
}

// readLedger verifies the chain over the same bytes that were digested before.
func (v *verifier) readLedger() (ledger.Head, []ledger.Record, error) {
	f, err := v.fsys.Open(ledger.FileLedger)
	if err != nil {
		return ledger.Head{}, nil, err
	}
	defer f.Close()
	h := sha256.New()
	head, records, err := ledger.Verify(io.TeeReader(f, h))
	if err == nil && "sha256:"+hex.EncodeToString(h.Sum(nil)) != v.files[ledger.FileLedger] {
		err = errors.New("the ledger changed while it was read")
	}
	return head, records, err
}
