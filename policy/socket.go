package policy

import "strings"

// namesEngineSocket says whether text names the control socket of a container
// engine. The socket is never there, whatever is asked; this check exists so
// that the asking is refused by name, with a sentence, instead of by chance. It
// errs towards refusing, and looks at the name alone, so that no spelling of
// the directory matters.
func namesEngineSocket(text string) bool {
	text = strings.ToLower(text)
	text = strings.NewReplacer("%2e", ".", "%2f", "/", "\\", "").Replace(text)
	for _, name := range []string{"docker.sock", "docker.socket", "dockershim.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock", "docker_engine"} {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}
