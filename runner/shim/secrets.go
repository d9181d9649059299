package shim

import (
	"fmt"
	"path/filepath"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// placeSecrets writes a job's secret files into dir, a mount in memory, and
// forgets them. It syncs nothing: there is no disk. An error names the file, never
// what is in it; the job is then not started.
func placeSecrets(dir string, secrets []protocol.SecretFile) error {
	for _, s := range secrets {
		err := writeNew(filepath.Join(dir, s.Name), s.Data, 0o400)
		clear(s.Data)
		if err != nil {
			return fmt.Errorf("writing secret file %s: %v", s.Name, err)
		}
	}
	return nil
}
