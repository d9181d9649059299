package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExtends says what a profile keeps of the one it extends: maps merge by
// key, everything that carries authority is replaced as a whole.
func TestExtends(t *testing.T) {
	const base = "version: 1\nprofiles:\n  base:\n    image: ci:1\n    env: {A: base, B: base}\n    writable: [/workspace, /tmp]\n    limits: {cpu: 1, memory: 8GiB}\n    outputs: {kind: comment, max_files: 7}\n" +
		"    network: {allow: [{host: a.example.com, port: 443}, {host: b.example.com, port: 443}]}\n    secrets: {k: {ref: 'vault://a/b', deliver: file}}\n    tools: [Read, Bash]\n  x: {extends: base%}\n  y: {extends: x}\n"
	type result struct {
		Env, Roots, Hosts, Secrets, Tools, CPU, Memory, Kind, Files string
	}
	inherited := result{"A=base B=base", "/dev/shm /home/agent /tmp /workspace", "a.example.com b.example.com", "k", "Read Bash", "1", "8192MiB", "comment", "7"}
	for _, c := range []struct {
		name, own string
		change    func(*result)
	}{
		{"nothing", "", func(*result) {}},
		{"env merges", ", env: {B: x, C: x}", func(r *result) { r.Env = "A=base B=x C=x" }},
		{"empty env adds nothing", ", env: {}", func(*result) {}},
		{"limits merge", ", limits: {cpu: 4}", func(r *result) { r.CPU = "4" }},
		{"outputs merge", ", outputs: {max_files: 9}", func(r *result) { r.Files = "9" }},
		{"roots replace", ", writable: [/tmp]", func(r *result) { r.Roots = "/dev/shm /home/agent /tmp" }},
		{"no roots", ", writable: []", func(r *result) { r.Roots = "/dev/shm /home/agent" }},
		{"hosts replace", ", network: {allow: [{host: c.example.com, port: 443}]}", func(r *result) { r.Hosts = "c.example.com" }},
		{"no hosts", ", network: {allow: []}", func(r *result) { r.Hosts = "" }},
		{"network without allow is none", ", network: {}", func(r *result) { r.Hosts = "" }},
		{"secrets replace", ", secrets: {z: {ref: 'vault://a/z', deliver: file}}", func(r *result) { r.Secrets = "z" }},
		{"no secrets", ", secrets: {}", func(r *result) { r.Secrets = "" }},
		{"tools replace", ", tools: [Edit]", func(r *result) { r.Tools = "Edit" }},
	} {
		for _, profile := range []string{"x", "y"} {
			t.Run(c.name+"/"+profile, func(t *testing.T) {
				in := input(t, strings.Replace(base, "%", c.own, 1), "", testCase{Profile: profile}, nil)
				in.Snapshot.Policy.Ref = refFile // so that nobody need vouch for its secrets
				d := Derive(in)
				if d.Refusal != nil {
					t.Fatal(d.Refusal)
				}
				var got result
				var env, roots, hosts, secrets, tools []string
				for _, k := range sortedKeys(d.Contract.Env) {
					env = append(env, k+"="+d.Contract.Env[k])
				}
				for _, r := range d.Contract.WritableRoots {
					roots = append(roots, r.Path)
				}
				for _, r := range d.Contract.Network.Allow {
					hosts = append(hosts, r.Host)
				}
				for _, s := range d.Contract.SecretRefs {
					secrets = append(secrets, s.Name)
				}
				for _, tool := range d.Contract.Tools {
					tools = append(tools, tool.Name)
				}
				got.Env, got.Roots, got.Hosts = strings.Join(env, " "), strings.Join(roots, " "), strings.Join(hosts, " ")
				got.Secrets, got.Tools = strings.Join(secrets, " "), strings.Join(tools, " ")
				for field, to := range map[string]*string{"limits.cpu": &got.CPU, "limits.memory_mb": &got.Memory, "outputs.kind": &got.Kind, "outputs.max_files": &got.Files} {
					for _, r := range d.Reasons {
						if r.Field == field {
							*to = r.Value
						}
					}
				}
				want := inherited
				c.change(&want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
