package main

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// maxGiven is how many entries of one kind a person is told before a run; the
// contract has them all.
const maxGiven = 8

// given says, in a line each, what a contract gives beyond the sandbox: where a
// run may reach, and what secrets it holds. None is no line.
func given(c contract.Contract) []string {
	var hosts, secrets []string
	for _, r := range c.Network.Allow {
		text := fmt.Sprintf("%s:%d", r.Host, r.Port)
		if r.Upstream != "" {
			text += " → " + r.Upstream
		}
		text += " (" + r.Mode
		if r.Private {
			text += ", private"
		}
		hosts = append(hosts, text+")")
	}
	for _, s := range c.SecretRefs {
		secrets = append(secrets, s.Name+" ("+s.Deliver+")")
	}
	var lines []string
	for _, of := range []struct {
		what  string
		names []string
	}{{"may reach ", hosts}, {"holds the secrets ", secrets}} {
		if n := len(of.names); n > maxGiven {
			of.names = append(of.names[:maxGiven], fmt.Sprintf("%d more", n-maxGiven))
		}
		if len(of.names) > 0 {
			lines = append(lines, of.what+strings.Join(of.names, ", "))
		}
	}
	return lines
}
