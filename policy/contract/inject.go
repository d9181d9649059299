package contract

// Ways to inject a credential into a request.
const (
	// InjectHeader sets the named header to the secret, whole.
	InjectHeader = "header"
	// InjectBearer sets Authorization to "Bearer " and the secret (RFC 6750 §2.1).
	InjectBearer = "bearer"
	// InjectBasic sets Authorization to "Basic " and the secret in base64; the
	// secret is user:password (RFC 7617 §2).
	InjectBasic = "basic"
)

func checkInject(c *checker, i *Inject) {
	if i == nil {
		return
	}
	c.is("inject.secret", CheckName(i.Secret))
	c.oneOf("inject.as", i.As, InjectHeader, InjectBearer, InjectBasic)
	switch {
	case i.As == InjectHeader:
		c.is("inject.name", checkHeaderName(i.Name))
	case i.Name != "":
		c.addf("inject.name", "is %s, but %s sets the header Authorization; leave the name empty", quote(i.Name), quote(i.As))
	}
}
