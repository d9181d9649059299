package policy

import (
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Checked says what one profile of a policy gives: its level and why, or the
// refusal that it always meets.
type Checked struct {
	Profile string
	// Base is true for a profile without an image, which only others extend.
	Base    bool
	Level   contract.Level
	Why     string
	Image   string
	Refusal *Refusal
	// LocalOnly is true when the image is named by tag.
	LocalOnly bool
}

// Check derives each profile of a policy as a person at a terminal would get
// it who names the policy's file, under the ceiling (nil: the built-in local
// one), with made-up facts. It finds what [Parse] cannot see: a profile past the ceiling, or one whose
// contract would be unsound.
func Check(policy, ceiling *Document) ([]Checked, error) {
	var out []Checked
	for _, name := range policy.Profiles() {
		m := policy.profiles[name]
		c := Checked{Profile: name}
		if m.keys.Image == nil {
			c.Base = true
			out = append(out, c)
			continue
		}
		in, err := testCase{Profile: name}.input(policy, ceiling)
		if err != nil {
			return nil, err
		}
		in.Snapshot.Policy.Ref = refFile
		d := Derive(in)
		c.Image, c.Refusal, c.Level = *m.keys.Image, d.Refusal, d.Contract.Level
		c.LocalOnly = contract.RefDigest(c.Image) == ""
		if n := len(d.Reasons); d.Refusal == nil && n > 0 {
			c.Why = strings.Join(d.Reasons[n-1].Because, "; ")
		}
		out = append(out, c)
	}
	return out, nil
}
