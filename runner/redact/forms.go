package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// lineMin is the shortest line of a long secret, in bytes, that is masked by
// itself: shorter ones would mask ordinary text.
const lineMin = 16

// forms lists every spelling of a secret that is masked. All have at least
// MinSecret bytes when the secret has.
func forms(secret []byte) [][]byte {
	set := map[string]bool{}
	add := func(f string) {
		if len(f) >= MinSecret {
			set[f] = true
		}
	}
	add(string(secret))
	for line := range strings.SplitSeq(string(secret), "\n") {
		// A key's lines are printed apart and indented; its "-----BEGIN …" is
		// no secret.
		if line = strings.TrimSpace(line); len(line) >= lineMin && !strings.HasPrefix(line, "-----") {
			add(line)
		}
	}
	h := hex.EncodeToString(secret)
	add(h)
	add(strings.ToUpper(h))
	base64Forms(secret, add)
	urlForms(secret, add)
	jsonForms(secret, add)
	out := make([][]byte, 0, len(set))
	for f := range set {
		out = append(out, []byte(f))
	}
	return out
}

// base64Forms adds the characters that the secret alone determines, at each of
// the three places a secret can have within the encoded bytes, and the whole
// encodings, padded or not, of data that ends with the secret.
func base64Forms(secret []byte, add func(string)) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead := range 3 {
			text := enc.EncodeToString(append(make([]byte, lead), secret...))
			// The first character that no byte before the secret touches.
			from := (lead*8 + 5) / 6
			whole := (lead + len(secret)) * 8 / 6
			add(text[from:whole])
			add(text[from:])
			add(text[from:] + strings.Repeat("=", (4-len(text)%4)%4))
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for _, tail := range []string{"", "\n"} {
			wrappedForms(enc.EncodeToString(append(bytes.Clone(secret), tail...)), add)
		}
	}
}

// wrappedForms adds the lines of a long encoding: base64(1) breaks it at 76
// characters, openssl at 64.
func wrappedForms(text string, add func(string)) {
	for _, width := range []int{64, 76} {
		for rest := text; len(text) > width && rest != ""; {
			line := rest[:min(width, len(rest))]
			if rest = rest[len(line):]; len(line) >= lineMin {
				add(line)
			}
		}
	}
}

// urlForms adds percent-encodings: what is left as it is differs between
// implementations (RFC 3986's unreserved; JavaScript's encodeURIComponent;
// Python's quote; Go's path segments), and so do the case of digits and the space.
func urlForms(secret []byte, add func(string)) {
	for _, keep := range []string{"-._~", "-._~!'()*", "-._~/", "-._", "-._~$&+=:@"} {
		for _, digits := range []string{"%%%02X", "%%%02x"} {
			var b strings.Builder
			for _, c := range secret {
				if isAlnum(c) || strings.IndexByte(keep, c) >= 0 {
					b.WriteByte(c)
				} else {
					fmt.Fprintf(&b, digits, c)
				}
			}
			add(b.String())
			add(strings.ReplaceAll(b.String(), "%20", "+"))
		}
	}
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// jsonForms adds what common encoders write between the quotes: with and without
// the escapes for HTML, with everything outside ASCII escaped, with "\/".
func jsonForms(secret []byte, add func(string)) {
	if !utf8.Valid(secret) {
		return
	}
	for _, html := range []bool{true, false} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if err := e.Encode(string(secret)); err != nil {
			continue
		}
		text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
		add(text)
		add(strings.ReplaceAll(text, "/", `\/`))
		add(asciiOnly(text))
	}
}

func asciiOnly(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.String()
}
