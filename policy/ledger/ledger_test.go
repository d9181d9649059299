package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// at is the fixed clock of these tests.
func at() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 5e6, time.FixedZone("", 3600)) }

func newTestWriter(t *testing.T, out io.Writer) *Writer {
	t.Helper()
	w, err := NewWriter(Config{Out: out, Now: at, Run: "run_1", Tenant: 42})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// goodLedger has five records.
func goodLedger(t *testing.T) ([]byte, Head) {
	t.Helper()
	var out bytes.Buffer
	w := newTestWriter(t, &out)
	for i, typ := range []string{TypeAdmitted, "created", "output", "canary", TypeConcluded} {
		if _, err := w.Append(typ, map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes(), w.Head()
}

func TestFirstRecord(t *testing.T) {
	var out bytes.Buffer
	w := newTestWriter(t, &out)
	if _, err := w.Append(TypeAdmitted, Admitted{Contract: "sha256:ab", Level: "L1", Revision: 1}); err != nil {
		t.Fatal(err)
	}
	want := `{"data":{"contract":"sha256:ab","level":"L1","revision":1},"prev":"sha256:` + strings.Repeat("0", 64) +
		`","run":"run_1","seq":1,"tenant":42,"time":"2026-11-29T11:00:00.005Z","type":"run.admitted","v":1}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

func TestVerifyReadsWhatWriterWrote(t *testing.T) {
	text, head := goodLedger(t)
	got, records, err := Verify(bytes.NewReader(text))
	if err != nil || got != head || len(records) != 5 {
		t.Fatalf("Verify = %v, %d records, %v; want %v, 5, nil", got, len(records), err, head)
	}
	if got, _, err := Verify(strings.NewReader("")); err != nil || got != (Head{Digest: Genesis}) {
		t.Errorf("an empty ledger: %v, %v", got, err)
	}
}

func TestVerifyNamesTheLine(t *testing.T) {
	text, _ := goodLedger(t)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	lines[4] += "\n"
	join := func(order ...int) string {
		var b strings.Builder
		for _, i := range order {
			b.WriteString(lines[i])
		}
		return b.String()
	}
	replace := func(i int, old, new string) string {
		changed := append([]string{}, lines...)
		if !strings.Contains(changed[i], old) {
			t.Fatalf("line %d has no %s", i+1, old)
		}
		changed[i] = strings.Replace(changed[i], old, new, 1)
		return strings.Join(changed, "")
	}
	for _, c := range []struct {
		name, text string
		line       int64
		why        string
	}{
		{"first removed", join(1, 2, 3, 4), 1, "seq is 2"},
		{"middle removed", join(0, 1, 3, 4), 3, "seq is 4"},
		{"duplicated", join(0, 1, 1, 2, 3, 4), 3, "seq is 2"},
		{"swapped", join(0, 2, 1, 3, 4), 2, "seq is 3"},
		{"foreign line added", join(0, 1, 2, 3, 4) + join(0), 6, "seq is 1"},
		{"value changed", replace(1, `"n":1`, `"n":9`), 3, "prev does not name"},
		{"time changed", replace(1, "11:00:00", "11:00:01"), 3, "prev does not name"},
		{"other tenant", replace(4, `"tenant":42`, `"tenant":43`), 5, "another run"},
		{"other run", replace(4, `"run_1"`, `"run_2"`), 5, "another run"},
		{"white space", replace(2, `{"data"`, `{ "data"`), 3, "not canonical"},
		{"number spelt otherwise", replace(2, `"n":2`, `"n":2.0`), 3, "not canonical"},
		{"carriage return", replace(2, "\n", "\r\n"), 3, "not canonical"},
		{"unknown key", replace(2, `{"data"`, `{"a":1,"data"`), 3, "not a record"},
		{"key twice", replace(2, `"n":2`, `"n":2,"n":2`), 3, "not a record"},
		{"not JSON", replace(2, `{"data"`, `["data"`), 3, "not a record"},
		{"data is null", replace(2, `{"n":2}`, `null`), 3, "not a JSON object"},
		{"data is a list", replace(2, `{"n":2}`, `[2]`), 3, "not a JSON object"},
		{"raw escape sequence", replace(2, `"n":2`, `"n":"\u001b[2J"`), 3, "not escaped"},
		{"version", replace(2, `"v":1`, `"v":2`), 3, "version 2"},
		{"time of another zone", replace(2, `.005Z`, `.005+01:00`), 3, "not UTC"},
		{"type with a space", replace(2, `"output"`, `"out put"`), 3, "lower-case word"},
		{"cut in the last line", string(text[:len(text)-9]), 5, "cut off"},
		{"newline cut", string(text[:len(text)-1]), 5, "cut off"},
		{"empty line", join(0, 1) + "\n" + join(2, 3, 4), 3, "not a record"},
		{"long line", join(0, 1) + strings.Repeat("x", MaxLine) + "\n", 3, "longer than"},
	} {
		_, records, err := Verify(strings.NewReader(c.text))
		var broken *BrokenError
		if !errors.As(err, &broken) {
			t.Errorf("%s: got %v, want a BrokenError", c.name, err)
			continue
		}
		if broken.Line != c.line || !strings.Contains(broken.Why, c.why) {
			t.Errorf("%s: got %q, want line %d: …%s…", c.name, err, c.line, c.why)
		}
		if int64(len(records)) != c.line-1 {
			t.Errorf("%s: %d records before line %d", c.name, len(records), c.line)
		}
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	text, head := goodLedger(t)
	for i := 0; i < len(text)*8; i += 7 { // every byte, and every bit of it somewhere
		flipped := bytes.Clone(text)
		flipped[i/8] ^= 1 << (i % 8)
		if got, _, err := Verify(bytes.NewReader(flipped)); err == nil && got == head {
			t.Fatalf("bit %d of byte %d flipped unseen", i%8, i/8)
		}
	}
}

func TestCutEndChangesTheHead(t *testing.T) {
	text, head := goodLedger(t)
	cut := text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
	got, records, err := Verify(bytes.NewReader(cut))
	if err != nil || len(records) != 4 || got == head || got.Records != 4 {
		t.Errorf("Verify = %v, %d records, %v; want a head of 4 records that differs from %v", got, len(records), err, head)
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  string
		data any
		want string
	}{
		{"no type", "", map[string]int{}, "lower-case word"},
		{"type with a newline", "a\nb", map[string]int{}, "lower-case word"},
		{"long type", strings.Repeat("a", 65), map[string]int{}, "lower-case word"},
		{"no object", "x", "text", "JSON object"},
		{"nothing", "x", nil, "JSON object"},
		{"not JSON", "x", map[string]any{"f": func() {}}, "unsupported"},
		{"too large", "x", map[string]string{"s": strings.Repeat("a", MaxLine)}, "at most 65536"},
	} {
		var out bytes.Buffer
		w := newTestWriter(t, &out)
		_, err := w.Append(c.typ, c.data)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
		if _, err := w.Append("next", map[string]int{}); err != nil || out.Len() == 0 {
			t.Errorf("%s: the ledger did not go on: %v", c.name, err)
		}
	}
}

func TestConfigIsRequired(t *testing.T) {
	for _, c := range []Config{
		{Now: at, Run: "r"}, {Out: io.Discard, Run: "r"}, {Out: io.Discard, Now: at}, {Out: io.Discard, Now: at, Run: "a\x1b"},
	} {
		if _, err := NewWriter(c); err == nil {
			t.Errorf("NewWriter(%+v) gave a writer", c)
		}
	}
}

// failing fails its nth write or sync, from 1, after half of the bytes.
type failing struct{ writes, failAt int }

func (f *failing) Write(p []byte) (int, error) {
	if f.writes++; f.writes == f.failAt {
		return len(p) / 2, errors.New("disk full")
	}
	return len(p), nil
}

func TestFailedWriteIsFinal(t *testing.T) {
	out := &failing{failAt: 2}
	w := newTestWriter(t, out)
	for i, want := range []bool{true, false, false} {
		if _, err := w.Append("x", map[string]int{}); (err == nil) != want {
			t.Errorf("append %d: %v", i+1, err)
		}
	}
	if out.writes != 2 || w.Head().Records != 1 {
		t.Errorf("%d writes and head %v after a failure, want 2 and one record", out.writes, w.Head())
	}
}

func TestFailedSyncIsFinal(t *testing.T) {
	var out bytes.Buffer
	synced := 0
	w, err := NewWriter(Config{Out: &out, Now: at, Run: "r", Sync: func() error {
		synced++
		return fmt.Errorf("sync %d", synced)
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.Append("x", map[string]int{}); err == nil || !strings.Contains(err.Error(), "sync 1") {
			t.Errorf("got %v, want the first sync's error", err)
		}
	}
}

func TestAppendEscapesValuesAndKeys(t *testing.T) {
	var out bytes.Buffer
	w := newTestWriter(t, &out)
	hostile := "a\x1b]0;title\a\u202e\nb"
	record, err := w.Append("x", map[string]any{hostile: []string{hostile}, "n": 12345678901})
	if err != nil {
		t.Fatal(err)
	}
	safe := `a\\x1b]0;title\\a\\u202e\\nb`
	if want := `{"` + safe + `":["` + safe + `"],"n":12345678901}`; string(record.Data) != want {
		t.Errorf("data is %s, want %s", record.Data, want)
	}
	if _, _, err := Verify(&out); err != nil {
		t.Error(err)
	}
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(""), 0)
	f.Add([]byte("{}\n"), 3)
	f.Add([]byte(`{"data":{},"prev":"`+Genesis+`","run":"r","seq":1,"tenant":0,"time":"2026-11-29T11:00:00.005Z","type":"x","v":1}`+"\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		head, records, err := Verify(bytes.NewReader(text))
		if int64(len(records)) != head.Records {
			t.Errorf("%d records, head %v", len(records), head)
		}
		if err == nil && len(text) > 0 && text[len(text)-1] != '\n' {
			t.Error("a line without its end was taken")
		}
	})
}
