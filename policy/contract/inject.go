package contract

// Ways to inject a credential into a request, beside [InjectHeader].
const (
	// InjectBearer sets Authorization to "Bearer " and the secret (RFC 6750 §2.1).
	InjectBearer = "bearer"
	// InjectBasic sets Authorization to "Basic " and the secret in base64; the
	// secret is user:password (RFC 7617 §2).
	InjectBasic = "basic"
)
