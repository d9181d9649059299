package egress

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Decide says whether rules allow what q asks at the instant now. It is pure.
//
// A connection is allowed when a rule in force names its host and port; a
// request also needs, in the modes that read requests, its method, its path and
// WebSocket. Of the rules for one host and port the first that allows counts.
// Rules in force that name the host itself set aside the wildcards for that
// host and port: an exact rule is the whole answer, so that a tunnel to
// *.example.com is no way around an inspected api.example.com.
//
// In an opaque tunnel every method but CONNECT and TRACE is allowed, every path
// and WebSocket; Path is not read there.
func Decide(rules *Rules, q Question, now time.Time) Verdict {
	if problem := hostProblem(q.Host); problem != "" {
		return Verdict{Rule: -1, Class: ClassName, Reason: problem}
	}
	nearest := Verdict{Rule: -1, Class: ClassHost}
	for _, named := range rules.naming(q.Host) {
		for _, i := range named {
			class := rules.judge(i, q, now)
			if class == ClassAllowed {
				return Verdict{Allow: true, Rule: i, Class: ClassAllowed}
			}
			if nearness(class) > nearness(nearest.Class) {
				nearest.Rule, nearest.Class = i, class
			}
		}
		if nearness(nearest.Class) > nearness(ClassExpired) {
			break // rules in force answered
		}
	}
	nearest.Reason = rules.reason(q, nearest)
	return nearest
}

// hostProblem says why a host is no name in its one spelling, "" if it is.
func hostProblem(host string) string {
	name, err := contract.ParseHost(host)
	switch {
	case err != nil:
		return problem("host", err)
	case name != host:
		return "the host is not in lower case"
	}
	return ""
}

// judge asks one rule that was found by its host.
func (r *Rules) judge(i int, q Question, now time.Time) Class {
	rule, parsed := &r.allow[i], &r.parsed[i]
	switch {
	case !parsed.host.Match(q.Host):
		return ClassHost
	case rule.Port != q.Port:
		return ClassPort
	case rule.Grant.Expired(now):
		return ClassExpired
	case q.Method == "":
		return ClassAllowed
	case contract.CheckMethod(q.Method) != nil:
		return ClassMethod
	case rule.Mode == contract.RuleOpaque:
		return ClassAllowed
	case !slices.Contains(rule.Methods, q.Method):
		return ClassMethod
	case !allowsPath(parsed.paths, q.Path):
		return ClassPath
	case q.WebSocket && !rule.WebSocket:
		return ClassWebSocket
	}
	return ClassAllowed
}

// allowsPath wants a path in normal form. One with an encoded slash is read by
// some servers as one segment and by some as two; both readings must be allowed.
func allowsPath(patterns []contract.PathPattern, path string) bool {
	if normal, err := NormalPath(path); err != nil || normal != path {
		return false
	}
	if !matchesAny(patterns, path) {
		return false
	}
	return !strings.Contains(path, encodedSlash) || matchesAny(patterns, strings.ReplaceAll(path, encodedSlash, "/"))
}

func matchesAny(patterns []contract.PathPattern, path string) bool {
	return slices.ContainsFunc(patterns, func(p contract.PathPattern) bool { return p.Match(path) })
}

// nearness orders denials by how much of the question a rule did allow.
func nearness(c Class) int {
	return slices.Index([]Class{ClassHost, ClassPort, ClassExpired, ClassMethod, ClassPath, ClassWebSocket}, c)
}
