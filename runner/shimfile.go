package runner

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// CheckShim refuses a shim that is not a static executable for Linux: inside
// an image there may be no loader, or one of the image's own.
func CheckShim(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return &Unavailable{What: fmt.Sprintf("the shim %s cannot be read: %v", path, err), Hint: "run make build, or set COUNTERSIGN_SHIM to the file countersign-shim"}
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return &Unavailable{What: fmt.Sprintf("the shim %s is not a static executable", path), Hint: "build it with CGO_ENABLED=0 (make build)"}
		}
	}
	return nil
}

// installShim puts the shim where it can be mounted as protocol.ShimDir, once
// for each digest, and returns that directory.
func installShim(source, dir string) (string, error) {
	if err := CheckShim(source); err != nil {
		return "", err
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return "", fmt.Errorf("reading shim: %v", err)
	}
	sum := sha256.Sum256(data)
	dst := filepath.Join(dir, hex.EncodeToString(sum[:]))
	if _, err := os.Stat(dst); err == nil {
		return dst, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("installing shim: %v", err)
	}
	tmp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return "", fmt.Errorf("installing shim: %v", err)
	}
	defer os.RemoveAll(tmp)
	if err := fillShimDir(tmp, data); err != nil {
		return "", fmt.Errorf("installing shim: %v", err)
	}
	if err := os.Rename(tmp, dst); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("installing shim: %v", err)
	}
	return dst, nil
}

func fillShimDir(dir string, data []byte) error {
	bin := filepath.Join(dir, filepath.Base(protocol.ShimBinDir))
	shim := filepath.Join(dir, filepath.Base(protocol.ShimPath))
	return errors.Join(
		os.Mkdir(bin, 0o755),
		os.WriteFile(shim, data, 0o755),
		os.Link(shim, filepath.Join(bin, "countersign")),
		os.Chmod(shim, 0o755), os.Chmod(bin, 0o755), os.Chmod(dir, 0o755), // whatever the umask
	)
}
