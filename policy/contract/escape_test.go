package contract

import "testing"

func TestEscape(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain text, ünïcode 名前", "plain text, ünïcode 名前"},
		{"a\nb\tc\rd", `a\nb\tc\rd`},
		{"\x1b[31mred", `\x1b[31mred`},
		{"\u009b2J", `\u009b2J`},             // C1 control sequence introducer
		{"a\u202egpj.exe", `a\u202egpj.exe`}, // right-to-left override
		{"zero\u200bwidth", `zero\u200bwidth`},
		{"\u2028", `\u2028`},
		{"\xff\xfe", `\xff\xfe`},
		{"\x7f", `\x7f`},
		{`back\slash`, `back\\slash`},
		{`'quoted' "twice"`, `'quoted' "twice"`},
		{"\U000e0001", `\U000e0001`}, // language tag
		{"\u00a0", `\u00a0`},
		{"", ""},
	} {
		got := Escape(c.in)
		if got != c.want {
			t.Errorf("Escape(%q) = %q, want %q", c.in, got, c.want)
		}
		if !Printable(got) {
			t.Errorf("Escape(%q) does not print", c.in)
		}
	}
}
