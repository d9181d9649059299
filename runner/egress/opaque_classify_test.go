package egress

import "testing"

// A server may take other space than one SP for what ends the method (RFC 9112
// §3); its request is not passed on unread.
func TestFirstLineSpace(t *testing.T) {
	for _, space := range []string{" ", "\t", "\v", "\f", "\r"} {
		for _, method := range []string{"GET", "MKCOL"} {
			line := method + space + "/a HTTP/1.1\r\n"
			if kind, known := firstLine([]byte(line)); kind != protocolHTTP || !known {
				t.Errorf("%q: protocol %d, known %t", line, kind, known)
			}
		}
	}
	for _, line := range []string{"EHLO\r\n", "EHLO\ta\r\n", "SSH-2.0-a b\r\n"} {
		if kind, known := firstLine([]byte(line)); kind != protocolOther || !known {
			t.Errorf("%q: protocol %d, known %t", line, kind, known)
		}
	}
}
