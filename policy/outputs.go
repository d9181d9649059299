package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Outputs when the policy does not say, and the farthest that the built-in
// ceiling gives.
const (
	defaultMaxFiles = 100
	defaultMaxBytes = 1 << 20
	topMaxFiles     = 1000
	topMaxBytes     = 32 << 20
)

// defaultProtected are paths whose change could widen what a later run or CI
// may do.
func defaultProtected() []string {
	return []string{".github/**", "**/CODEOWNERS", "**/.gitattributes", "**/.claude/**"}
}

// outputs sets what may come of the changed workspace, cut to the ceiling.
func (d *deriver) outputs() {
	own, top := d.profile.keys.Outputs, d.cap.keys.Outputs
	if own == nil {
		own = &outputs{}
	}
	if top == nil {
		top = &outputs{}
	}
	kind := d.word("kind", text(own.Kind, contract.OutputPatch), text(top.Kind, contract.OutputPullRequest), outputKind("").words())
	topPush := text(top.Push, contract.PushApproved)
	if topPush == contract.PushTrusted && d.in.Ceiling.ceiling.CI != "trusted" {
		topPush = contract.PushApproved
	}
	push := d.word("push", text(own.Push, contract.PushNever), topPush, pushKind("").words())
	if kind != contract.OutputPullRequest && push != contract.PushNever {
		d.because("outputs.push", contract.PushNever, push+", but only the kind pull_request is pushed")
		push = contract.PushNever
	}
	d.c.Outputs = contract.Outputs{
		Kind: kind, Push: push,
		MaxFiles: int(d.amount("max_files", count(own.MaxFiles, defaultMaxFiles), count(top.MaxFiles, topMaxFiles))),
		MaxBytes: d.amount("max_bytes", count(own.MaxBytes, defaultMaxBytes), count(top.MaxBytes, topMaxBytes)),
	}
	paths, causes := defaultProtected(), []string{d.source("outputs.protected_paths")}
	if own.ProtectedPaths != nil {
		paths = slices.Clone(own.ProtectedPaths)
	}
	if len(top.ProtectedPaths) > 0 {
		paths = append(paths, top.ProtectedPaths...)
		causes = append(causes, "and "+d.capSource("outputs.protected_paths"))
	}
	d.c.Outputs.ProtectedPaths = slices.Compact(sorted(paths))
	d.because("outputs.protected_paths", strings.Join(d.c.Outputs.ProtectedPaths, " "), causes...)
}

// word takes the lesser of two words of a rising list.
func (d *deriver) word(key, own, top string, words []string) string {
	causes := []string{d.source("outputs." + key)}
	if rank(words, own) > rank(words, top) {
		causes = append(causes, own+", cut to "+top+" by "+d.capSource("outputs."+key))
		own = top
	}
	d.because("outputs."+key, own, causes...)
	return own
}

// amount takes the lesser of two amounts.
func (d *deriver) amount(key string, own, top int64) int64 {
	causes := []string{d.source("outputs." + key)}
	if own > top {
		causes = append(causes, fmt.Sprintf("%d, cut to %d by %s", own, top, d.capSource("outputs."+key)))
		own = top
	}
	d.because("outputs."+key, strconv.FormatInt(own, 10), causes...)
	return own
}

func text[T ~string](p *T, otherwise string) string {
	if p == nil {
		return otherwise
	}
	return string(*p)
}

func count[T ~int | ~int64](p *T, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return int64(*p)
}
