package contract

import (
	"fmt"
	"strings"
)

// CheckImageRef refuses what is not an image reference: NAME[:TAG][@DIGEST] by
// the grammar of the OCI distribution specification, or a local image's id,
// sha256: and 64 digits.
func CheckImageRef(s string) error {
	if isDigest(s) {
		return nil
	}
	name, digest, pinned := strings.Cut(s, "@")
	if pinned && !isDigest(digest) {
		return imageError(s)
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		if !validTag(name[i+1:]) {
			return imageError(s)
		}
		name = name[:i]
	}
	if !validImageName(name) {
		return imageError(s)
	}
	return nil
}

func imageError(s string) error {
	return fmt.Errorf("is %s, want an image such as NAME:TAG or NAME@sha256:DIGEST", quote(s))
}

// RefDigest is the digest that an image reference carries itself, "" if none.
func RefDigest(ref string) string {
	if isDigest(ref) {
		return ref
	}
	_, digest, _ := strings.Cut(ref, "@")
	return digest
}

func validTag(s string) bool {
	return s != "" && len(s) <= 128 && s[0] != '.' && s[0] != '-' && only(s, isNameByte)
}

// validImageName judges [HOST[:PORT]/]PATH. As everywhere in this field the
// first component is a host when it holds a dot, a colon or an upper-case
// letter, or is "localhost".
func validImageName(name string) bool {
	if name == "" || len(name) > 255 {
		return false
	}
	parts := strings.Split(name, "/")
	if first := parts[0]; len(parts) > 1 && (strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first) {
		if !validRegistry(first) {
			return false
		}
		parts = parts[1:]
	}
	for _, p := range parts {
		if !validComponent(p) {
			return false
		}
	}
	return true
}

// validRegistry allows an address, which [ParseHost] does not: an image's
// registry is not a host that a run may reach.
func validRegistry(s string) bool {
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && (port == "" || len(port) > 5 || !only(port, isDigit)) {
		return false
	}
	for l := range strings.SplitSeq(host, ".") {
		if checkLabel(l, host) != nil {
			return false
		}
	}
	return true
}

// validComponent is lower-case letters and digits, joined by one dot, one or
// two underscores, or hyphens.
func validComponent(s string) bool {
	alnum := func(b byte) bool { return isLower(b) || isDigit(b) }
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	if !only(s, func(b byte) bool { return alnum(b) || b == '.' || b == '_' || b == '-' }) {
		return false
	}
	for _, run := range strings.FieldsFunc(s, func(r rune) bool { return r != '.' && r != '_' && r != '-' }) {
		if run != "." && run != "_" && run != "__" && strings.Trim(run, "-") != "" {
			return false
		}
	}
	return true
}
