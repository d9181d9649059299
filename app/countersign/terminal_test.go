package main

import (
	"bytes"
	"testing"
)

// What a workload prints may colour a terminal and do nothing else to it.
func TestInertWriter(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain\ttext\r\n", "plain\ttext\r\n"},
		{"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		{"\x1b[38:2:1:2:3mtrue colour\x1b[m", "\x1b[38:2:1:2:3mtrue colour\x1b[m"},
		{"ümlaut ± 日本", "ümlaut ± 日本"},
		{"a\x1b[2Jb", "ab"},                  // clear the screen
		{"a\x1b[1A\x1b[Kb", "ab"},            // overwrite the line above
		{"a\x1b]0;title\x07b", "ab"},         // set the title
		{"a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"}, // write the clipboard
		{"a\x1bP$q\x1b\\b", "ab"},            // ask for a setting
		{"a\x1b[6nb", "ab"},                  // ask for the cursor
		{"a\x1b[?1049hb", "ab"},              // other screen
		{"a\x1b[>4;1mb", "ab"},               // key mode, which ends in m too
		{"a\x1b[?5mb", "ab"},                 // private, likewise
		{"a\x1bcb", "ab"},                    // reset
		{"a\x1b\x1b[2Jb", "ab"},              // escaped escape
		{"a\u009b2Jb", "a2Jb"},
		{"a\x9b2Jb", "a\ufffd2Jb"},
		{"a\u009d52;c;eA==\u009cb", "a52;c;eA==b"},               // CSI as one character (C1)
		{"a\xc2b", "a\ufffdb"},                                   // no character
		{"a\x08\x7f\x00\x07b", "ab"},                             // backspace, delete, NUL, bell
		{"a\x1b[" + string(bytes.Repeat([]byte("1;"), 40)), "a"}, // never ends
	} {
		for _, size := range []int{1, 2, len(tt.in)} { // however it is cut
			var out bytes.Buffer
			w := &inertWriter{w: &out}
			for in := []byte(tt.in); len(in) > 0; in = in[min(size, len(in)):] {
				if n, err := w.Write(in[:min(size, len(in))]); err != nil || n != min(size, len(in)) {
					t.Fatal(n, err)
				}
			}
			if out.String() != tt.want {
				t.Errorf("%q in pieces of %d: %q, want %q", tt.in, size, out.String(), tt.want)
			}
		}
	}
}
