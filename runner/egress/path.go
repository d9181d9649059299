package egress

import "errors"

// NormalTarget splits an origin-form request target (RFC 9112 §3.2.1) into its
// path in normal form and the rest: "" or "?" with the query as it was sent.
// What is forwarded is path+rest.
func NormalTarget(raw string) (path, rest string, err error) {
	return "", "", errors.New("no path can be read yet")
}

// NormalPath returns the one normal form of a path, or says why there is none.
func NormalPath(raw string) (string, error) { return "", errors.New("no path can be read yet") }
