package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// size is a number of bytes, written with a binary unit: 512KiB, 64MiB, 4GiB.
type size int64

// mib is a size that is a whole number of MiB, the unit contracts count in.
type mib int64

// duration is a number of whole seconds, written as 90s, 15m or 1h30m.
type duration int64

// oneOrMore is a list of text that may be written as one text.
type oneOrMore []string

const (
	sizePattern     = `^[0-9]{1,9}(KiB|MiB|GiB)$`
	durationPattern = `^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$`
)

var (
	sizeSyntax     = regexp.MustCompile(`^([0-9]{1,9})(KiB|MiB|GiB)$`)
	looseSize      = regexp.MustCompile(`^([0-9]{1,9})\s*([A-Za-z]*)$`)
	durationSyntax = regexp.MustCompile(durationPattern)
	looseDuration  = regexp.MustCompile(`^([0-9]{1,8})\s*([A-Za-z]*)$`)
)

func (s *size) parseText(text string) error {
	n, err := bytesOf(text)
	*s = size(n)
	return err
}

func (m *mib) parseText(text string) error {
	n, err := bytesOf(text)
	if err == nil && n%(1<<20) != 0 {
		return &hinted{"is counted in whole MiB, and " + text + " is not", fmt.Sprintf("%dMiB", n>>20+1)}
	}
	*m = mib(n >> 20)
	return err
}

func bytesOf(text string) (int64, error) {
	m := sizeSyntax.FindStringSubmatch(text)
	if m == nil {
		h := &hinted{msg: fmt.Sprintf("is a size such as 512KiB, 64MiB or 4GiB, not %q", clip(text))}
		if l := looseSize.FindStringSubmatch(text); l != nil {
			h.meant = l[1] + meantUnit(l[2])
		}
		return 0, h
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // nine digits
	shift := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	return n << shift, nil
}

func meantUnit(unit string) string {
	switch strings.ToLower(unit) {
	case "k", "kb", "kib":
		return "KiB"
	case "g", "gb", "gib":
		return "GiB"
	default:
		return "MiB"
	}
}

func (d *duration) parseText(text string) error {
	m := durationSyntax.FindStringSubmatch(text)
	if m == nil || text == "" {
		h := &hinted{msg: fmt.Sprintf("is a duration such as 90s, 15m or 1h30m, not %q", clip(text))}
		if l := looseDuration.FindStringSubmatch(text); l != nil {
			h.meant = meantDuration(l[1], l[2])
		}
		return h
	}
	total := int64(0)
	for i, unit := range []int64{3600, 60, 1} {
		if digits := strings.TrimRight(m[i+1], "hms"); digits != "" {
			n, _ := strconv.ParseInt(digits, 10, 64)
			total += n * unit
		}
	}
	*d = duration(total)
	return nil
}

func meantDuration(digits, unit string) string {
	switch strings.ToLower(unit) {
	case "h", "hr", "hrs", "hour", "hours":
		return digits + "h"
	case "m", "min", "mins", "minute", "minutes":
		return digits + "m"
	case "d", "day", "days":
		n, _ := strconv.Atoi(digits)
		return fmt.Sprintf("%dh", n*24)
	default:
		return digits + "s"
	}
}

func patternSchema(pattern, description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern, Description: description}
}

// JSONSchema describes the syntax to editors.
func (size) JSONSchema() *jsonschema.Schema {
	return patternSchema(sizePattern, "bytes, with a binary unit: 512KiB, 64MiB, 4GiB")
}

// JSONSchema describes the syntax to editors.
func (mib) JSONSchema() *jsonschema.Schema {
	return patternSchema(sizePattern, "whole MiB, with a binary unit: 64MiB, 4GiB")
}

// JSONSchema describes the syntax to editors.
func (duration) JSONSchema() *jsonschema.Schema {
	return patternSchema(`^(?=.)([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$`, "whole seconds: 90s, 15m, 1h30m")
}

// JSONSchema describes the syntax to editors.
func (oneOrMore) JSONSchema() *jsonschema.Schema {
	one := &jsonschema.Schema{Type: "string"}
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{one, {Type: "array", Items: one}}}
}
