package contract

import "time"

// Expired says whether an entry under g has ended at now. An entry without a
// grant (nil) is the policy's and does not end; a grant whose end cannot be read
// has ended. How often it was used is not in a contract; the ledger counts that.
func (g *Grant) Expired(now time.Time) bool {
	if g == nil {
		return false
	}
	end, err := ParseTime(g.NotAfter)
	return err != nil || now.After(end)
}
