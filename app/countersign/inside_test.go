package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/drill"
)

// The claims about a sandbox, tried from inside by a program that wants out. It
// is the drill's; all its attempts but those that the contract gives, and what is
// stated as weaker under an isolation, must fail. Both isolations and both ways
// of reaching the workspace are tried.
func TestFromInside(t *testing.T) {
	needDocker(t)
	for _, isolation := range isolations(t) {
		for _, transport := range transports() {
			t.Run(isolation+"/"+transport, func(t *testing.T) { fromInside(t, isolation, transport) })
		}
	}
}

func fromInside(t *testing.T, isolation, transport string) {
	c := newCheckout(t, map[string]string{
		"inside.py": drill.Program(), "keys/deploy.pem": "PRIVATE\n", "keys.txt": "public\n",
		"scripts/build.sh*": "#!/bin/sh\necho built\n",
	})
	c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport, "SUPER_SECRET=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2")
	denied, given := "[/workspace/keys, /usr/share/perl5, /etc/debian_version]", "{}"
	if isolation == "runsc" { // where a run with the others is refused, and PID 1 can be ended
		denied, given = "[/workspace/keys]", `{"spare_init": true, "image_denied": false}`
	}
	policy := strings.Replace(isolated(isolation, "pids=256"), "    writable:", "    read_denied: "+denied+"\n    writable:", 1)
	path := filepath.Join(t.TempDir(), "policy.yml")
	if err := os.WriteFile(path, []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	r := c.run("--policy", path, "--", "python3", "inside.py", "attempts", given)
	if r.code != 0 {
		t.Fatalf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	got, err := drill.ParseAttempts(r.file(t, "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0
	stated := drill.Stated(contract.Isolation(isolation))
	for _, a := range got {
		wrong := a.Wrong()
		switch {
		case stated[a.Name] != "" && wrong == "":
			t.Errorf("%s is stated as weaker, and was refused: %q", a.Name, a.Result)
		case stated[a.Name] != "":
		case wrong != "":
			t.Errorf("%s: %s", a.Control, wrong)
		case strings.HasPrefix(a.Name, "may "):
			allowed++
		}
	}
	if allowed < 8 || len(got) < 200 {
		t.Errorf("%d attempts, %d of them allowed: the program did not try what it should", len(got), allowed)
	}
	if patch := r.file(t, "changes.patch"); strings.Contains(patch, "deploy.pem") {
		t.Errorf("a denied path is in the patch:\n%s", patch)
	}
	if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
		t.Errorf("verify: %s", v.stdout)
	}
}

// An image that wants to take part in a run: its entry point, variables,
// volume, user and health check have no effect.
func TestHostileImage(t *testing.T) {
	needDocker(t)
	const tag = "countersign-test/hostile:latest"
	dockerfile := "FROM " + sandboxImage + `
ENTRYPOINT ["/bin/sh", "-c", "echo entrypoint ran"]
CMD ["nothing"]
ENV LD_PRELOAD=/evil.so PATH=/evil:/usr/bin:/bin BASH_ENV=/evil.sh PYTHONSTARTUP=/evil.py EVIL=1
VOLUME /data
USER root
WORKDIR /root
HEALTHCHECK --interval=1s CMD touch /tmp/health
STOPSIGNAL SIGKILL
`
	build := exec.Command("docker", "build", "-q", "-t", tag, "-")
	build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	build.Stdin = strings.NewReader(dockerfile)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the image: %v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("docker", "rmi", "-f", tag).Run() })
	c := newCheckout(t, map[string]string{"a": "a\n"})
	path := filepath.Join(t.TempDir(), "policy.yml")
	if err := os.WriteFile(path, []byte(smallPolicy("")), 0o644); err != nil {
		t.Fatal(err)
	}
	r := c.run("--policy", path, "--image", tag, "--", "/bin/sh", "-c", `
		id -u; pwd; echo "path $PATH"; env | grep -E 'LD_PRELOAD|BASH_ENV|PYTHONSTARTUP|EVIL' && echo image environment
		touch /data/x 2>/dev/null && echo volume is writable
		read -r x < /proc/1/comm; echo "init $x"
		for i in 1 2 3; do read -t 1 x < /dev/zero; done 2>/dev/null; python3 -c 'import time; time.sleep(2.5)'
		test -e /tmp/health && echo health check ran; true`)
	log := r.file(t, "output.log")
	if r.code != 0 {
		t.Fatalf("exit %d: %s\n%s", r.code, r.outcome.Reason, log)
	}
	for _, bad := range []string{"entrypoint ran", "image environment", "volume", "health check ran", "/evil", "\n0\n"} {
		if strings.Contains("\n"+log, bad) {
			t.Errorf("%q:\n%s", bad, log)
		}
	}
	if !strings.Contains(log, "\n/workspace\n") || !strings.Contains(log, "init shim") {
		t.Errorf("working directory or init:\n%s", log)
	}
}
