package egress

import (
	"context"
	"errors"
)

// SystemResolver asks the hosts file and then the name servers of this machine.
func SystemResolver() Resolver { return unbuilt{} }

// NewResolver asks the one name server at addr, ADDRESS or ADDRESS:PORT.
func NewResolver(addr string) (Resolver, error) { return unbuilt{}, nil }

type unbuilt struct{}

func (unbuilt) Resolve(context.Context, string) (Answer, error) {
	return Answer{}, errors.New("names cannot be resolved yet")
}
