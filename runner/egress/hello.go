package egress

// clientHello is what was read of a TLS ClientHello. Its bytes are still to be
// read from the connection.
type clientHello struct {
	serverName string // as contract.ParseHost returned it
}
