package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// chooseCap finds the maximum for the profile: the ceiling's profile of the
// same name, else its default. A ceiling without profiles leaves amounts to the
// built-in one and allows no list.
func (d *deriver) chooseCap() {
	c := d.in.Ceiling
	name := d.profile.name
	if c.maxima[name] == nil {
		name = c.ceiling.Default
	}
	switch {
	case c.maxima[name] != nil:
		d.cap = c.maxima[name]
		d.because("ceiling profile", name, c.place("profiles", name))
	case len(c.maxima) == 0:
		d.cap = &merged[ceilingProfile]{}
		d.because("ceiling profile", "built in", c.name+" has no profiles")
	default:
		d.refuse(CodeCeiling, fmt.Sprintf("the ceiling %s has no maximum for the profile %s", c.name, d.profile.name), "add a profile of that name, or default: NAME, to the ceiling")
	}
}

// network takes the profile's rules and what was asked for, and refuses what
// goes past the ceiling: a run that lacks a host it was promised could not work.
func (d *deriver) network() {
	d.c.Network = contract.Network{Mode: contract.NetworkNone, Allow: []contract.NetRule{}}
	if n := d.profile.keys.Network; n != nil {
		for i, r := range n.Allow {
			built, faults := r.build(d.profile.keys.Secrets)
			if len(faults) > 0 {
				d.refuse(CodeContract, faults[0].msg, "")
				return
			}
			d.allow(built, false, d.source("network", "allow", fmt.Sprint(i)))
		}
	}
	for _, asked := range d.in.Task.Asked.Allow {
		d.askedHost(asked)
	}
	if len(d.c.Network.Allow) > 0 {
		d.c.Network.Mode = contract.NetworkAllowlist
	}
	d.because("network.mode", d.c.Network.Mode, strconv.Itoa(len(d.c.Network.Allow))+" rules allow something")
}

// askedHost adds the tunnel that --allow asks for. It reaches public addresses,
// and others only where the ceiling names the host: that somebody typed a name
// does not say that its addresses, which others choose, may be the machine's own.
func (d *deriver) askedHost(asked string) {
	h, port, err := contract.ParseHostPort(asked)
	if err != nil {
		d.refuse(CodeAskedInvalid, "--allow "+err.Error(), "write --allow HOST:PORT")
		return
	}
	why := "asked by --allow"
	named := d.in.Ceiling.ceiling.Private.names(h.String())
	if named {
		why += "; private addresses, too, because the ceiling's private names the host"
	}
	built, faults := netRule{Host: h.String(), Port: &port, Private: named}.build(nil)
	if len(faults) > 0 {
		d.refuse(CodeAskedInvalid, "--allow "+asked+": "+faults[0].msg, "")
		return
	}
	if i := d.ruleFor(built); i >= 0 {
		d.note(fmt.Sprintf("network.allow[%d]", i), "asked by --allow, too, which adds nothing to it")
		return
	}
	d.allow(built, true, why)
}

// ruleFor is the place of the contract's rule for the same host and port, -1 for
// none.
func (d *deriver) ruleFor(r contract.NetRule) int {
	return slices.IndexFunc(d.c.Network.Allow, func(o contract.NetRule) bool { return o.Host == r.Host && o.Port == r.Port })
}

// allow adds a rule that is within the ceiling. asked says that a person at the
// terminal named it.
func (d *deriver) allow(r contract.NetRule, asked bool, why string) {
	name := targetText(r)
	if r.Private {
		if d.private(r, asked); d.refusal != nil {
			return
		}
	}
	bound, cause := d.within(r)
	if cause == "" {
		d.refuse(CodeNetwork, name+" is not within the ceiling's network.allow", "ask the owner to add the destination to the ceiling, or remove the rule")
		return
	}
	causes := []string{why, "within " + cause}
	if bound < r.UploadBytes {
		causes = append(causes, fmt.Sprintf("upload %d, cut to %d by the ceiling", r.UploadBytes, bound))
		r.UploadBytes = bound
	}
	d.c.Network.Allow = append(d.c.Network.Allow, r)
	d.because(fmt.Sprintf("network.allow[%d]", len(d.c.Network.Allow)-1), name+" "+ruleText(r), causes...)
}

// targetText says where a rule leads.
func targetText(r contract.NetRule) string {
	if r.Upstream != "" {
		return fmt.Sprintf("%s:%d → %s", r.Host, r.Port, r.Upstream)
	}
	return fmt.Sprintf("%s:%d", r.Host, r.Port)
}

// ruleText says what a rule gives, in a line.
func ruleText(r contract.NetRule) string {
	text := fmt.Sprintf("%s (%s), %d bytes out", r.Mode, r.Coverage, r.UploadBytes)
	if r.Inject != nil {
		text += ", with the secret " + r.Inject.Secret
	}
	if r.Private {
		text += ", private addresses too"
	}
	return text
}

// within finds the ceiling's entry that covers r, and the upload it leaves. An
// entry covers what goes to the same real destination by no freer a mode, with
// no more methods and paths.
func (d *deriver) within(r contract.NetRule) (upload int64, cause string) {
	n := d.cap.keys.Network
	if n == nil {
		return 0, ""
	}
	if n.Allow.Any {
		return r.UploadBytes, "the ceiling: any"
	}
	for i, entry := range n.Allow.List {
		top, faults := entry.build(nil)
		if len(faults) == 0 && covers(top, r) {
			upload, at := top.UploadBytes, d.capSource("network", "allow", fmt.Sprint(i))
			if entry.Upload == nil {
				upload = r.UploadBytes
			}
			return upload, at
		}
	}
	return 0, ""
}

// covers says whether top allows at least what r does. It may say no to what a
// cleverer comparison would allow, never yes to more.
func covers(top, r contract.NetRule) bool {
	topHost, topPort := destination(top)
	host, port := destination(r)
	if topPort != port || !hostCovered(topHost, host) || r.Private && !top.Private {
		return false
	}
	if top.Mode == contract.RuleOpaque {
		return true
	}
	return r.Mode == top.Mode && (top.API == "" || top.API == r.API) && (!r.WebSocket || top.WebSocket) &&
		subset(r.Methods, top.Methods) && pathsCovered(top.Paths, r.Paths) && subset(top.DenyBody, r.DenyBody)
}

// destination is the host pattern and port that bytes really go to.
func destination(r contract.NetRule) (string, string) {
	if r.Upstream != "" {
		host, port, _ := strings.Cut(strings.TrimPrefix(r.Upstream, "https://"), ":")
		return host, port
	}
	return r.Host, fmt.Sprint(r.Port)
}

// hostCovered compares two patterns: equal, or a name below top's star.
func hostCovered(top, host string) bool {
	if top == host {
		return true
	}
	p, err := contract.ParseHostPattern(top)
	return err == nil && !strings.HasPrefix(host, "*") && p.Match(host)
}

func subset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !contains(all, s) })
}

// pathsCovered wants each pattern of r to be one of top's, or below one that
// ends in **.
func pathsCovered(top, paths []string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool {
		return !slices.ContainsFunc(top, func(t string) bool {
			below, tree := strings.CutSuffix(t, "**")
			return t == p || tree && !strings.Contains(below, "*") && strings.HasPrefix(p, below)
		})
	})
}

// secrets takes the profile's and what was asked for, each by a reference that
// the ceiling allows.
func (d *deriver) secrets() {
	d.c.SecretRefs = []contract.SecretRef{}
	for _, name := range sortedKeys(d.profile.keys.Secrets) {
		s := d.profile.keys.Secrets[name]
		if d.vouched(name, s.Ref); d.refusal != nil {
			return
		}
		d.secret(contract.SecretRef{Name: name, Ref: s.Ref, Deliver: string(s.Deliver)}, d.source("secrets"))
	}
	for _, name := range sortedKeys(d.in.Task.Asked.Secrets) {
		if _, own := d.profile.keys.Secrets[name]; own {
			continue // judged with the profile's
		}
		d.secret(contract.SecretRef{Name: name, Ref: d.in.Task.Asked.Secrets[name], Deliver: contract.DeliverFile}, "asked by --secret")
	}
}

// vouched wants the owner's word for a secret of the profile where it needs one
// (see [deriver.unvouched]): the flag that names the same reference.
func (d *deriver) vouched(name, ref string) {
	asked, given := d.in.Task.Asked.Secrets[name]
	switch {
	case given && asked != ref:
		d.refuse(CodeAskedInvalid, "--secret "+clip(name)+" is a secret of the profile already, with another reference", "give it another name, or write --secret "+name+"="+ref)
	case !given && d.unvouched():
		d.refuse(CodeSecret, "the repository's policy wants the secret "+name+" of this machine ("+ref+")",
			"if you mean that, add --secret "+name+"="+ref+", or give a --ceiling that allows it")
	}
}

func (d *deriver) secret(s contract.SecretRef, why string) {
	if err := contract.CheckSecretRef(s.Ref); err != nil {
		d.refuse(CodeAskedInvalid, "--secret "+clip(s.Name)+" "+err.Error(), "")
		return
	}
	if namesEngineSocket(s.Ref) {
		d.refuse(CodeSocket, fmt.Sprintf("the secret %s asks for the container engine's socket, which no run is ever given", clip(s.Name)), "remove it")
		return
	}
	allowed, any := d.in.Ceiling.ceiling.AllowSecrets.List, d.in.Ceiling.ceiling.AllowSecrets.Any
	if !any && !slices.ContainsFunc(allowed, func(p string) bool { return refCovered(p, s.Ref) }) {
		d.refuse(CodeSecret, fmt.Sprintf("the secret %s is not within the ceiling's allow_secrets", s.Name), "ask the owner to allow its reference in the ceiling, or remove it")
		return
	}
	d.c.SecretRefs = append(d.c.SecretRefs, s)
	d.because("secret_refs."+s.Name, s.Ref+" by "+s.Deliver, why, "within the ceiling's allow_secrets")
}

// refCovered matches a reference with a pattern: equal, or longer than what
// stands before a * at the pattern's end. A reference with a dot segment is
// covered by no star, because who resolves it may climb out.
func refCovered(pattern, ref string) bool {
	prefix, star := strings.CutSuffix(pattern, "*")
	if !star {
		return pattern == ref
	}
	climbs := slices.ContainsFunc(strings.FieldsFunc(ref, func(r rune) bool { return r == '/' }), func(seg string) bool { return seg == "." || seg == ".." })
	return strings.HasPrefix(ref, prefix) && !climbs && !strings.Contains(ref, "%")
}

// tools takes the profile's tools and hosted tools; one that the ceiling does
// not name is a refusal.
func (d *deriver) tools() {
	d.c.Tools, d.c.HostedTools = []contract.Tool{}, []string{}
	for _, name := range d.profile.keys.Tools {
		d.tool("tools", name, d.cap.keys.Tools)
		d.c.Tools = append(d.c.Tools, contract.Tool{Name: name})
	}
	for _, name := range d.profile.keys.HostedTools {
		d.tool("hosted_tools", name, d.cap.keys.HostedTools)
		d.c.HostedTools = append(d.c.HostedTools, name)
	}
	if len(d.c.Tools) > 0 {
		d.because("tools", strings.Join(d.profile.keys.Tools, " "), d.source("tools"))
	}
	if len(d.c.HostedTools) > 0 {
		d.because("hosted_tools", strings.Join(d.c.HostedTools, " "), d.source("hosted_tools"))
	}
}

func (d *deriver) tool(key, name string, top *nameCap) {
	if top == nil || !top.Any && !contains(top.List, name) {
		d.refuse(CodeTool, fmt.Sprintf("%s is not within the ceiling's %s", clip(name), key), "ask the owner to add it to the ceiling, or remove it")
	}
}

// promotable is what the policy has approvers for and the ceiling lets be asked.
func (d *deriver) promotable() {
	d.c.Promotable = []string{}
	var cut []string
	for _, kind := range sortedKeys(d.in.Policy.policy.Promotion) {
		if slices.Contains(d.in.Ceiling.ceiling.Promotable, kind) {
			d.c.Promotable = append(d.c.Promotable, string(kind))
		} else {
			cut = append(cut, string(kind))
		}
	}
	causes := []string{"promotion (" + d.in.Policy.place("promotion") + ")"}
	if len(d.in.Policy.policy.Promotion) == 0 {
		causes = []string{"the policy has no promotion"}
	}
	if len(cut) > 0 {
		causes = append(causes, strings.Join(cut, " ")+" not promotable in the ceiling")
	}
	value := strings.Join(d.c.Promotable, " ")
	if value == "" {
		value = "none"
	}
	d.because("promotable", value, causes...)
}
