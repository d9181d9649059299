package policy

import (
	"fmt"
	"strconv"

	"github.com/countersign-dev/countersign/policy/contract"
)

// limitField is one amount of [limits]: how it is called in the policy and in
// the contract, what it is when nobody says, and the built-in ceiling's.
type limitField struct {
	key, field, unit string
	standard         float64
	most             float64
	get              func(*limits) (float64, bool) // false: not said
	set              func(*contract.Limits, float64)
}

// limitFields is the table of all limits, in the order of the contract. Amounts
// are as the contract counts them: cores, MiB, seconds, dollars. Nothing changes
// it.
var limitFields = []limitField{
	{"cpu", "limits.cpu", "", 2, 8, func(l *limits) (float64, bool) { return num(l.CPU) }, func(c *contract.Limits, v float64) { c.CPU = v }},
	{"memory", "limits.memory_mb", "MiB", 4096, 16384, func(l *limits) (float64, bool) { return num(l.Memory) }, func(c *contract.Limits, v float64) { c.MemoryMB = int64(v) }},
	{"pids", "limits.pids", "", 256, 4096, func(l *limits) (float64, bool) { return num(l.Pids) }, func(c *contract.Limits, v float64) { c.Pids = int64(v) }},
	{"disk", "limits.disk_mb", "MiB", 2048, 16384, func(l *limits) (float64, bool) { return num(l.Disk) }, func(c *contract.Limits, v float64) { c.DiskMB = int64(v) }},
	{"home", "limits.home_mb", "MiB", 512, 4096, func(l *limits) (float64, bool) { return num(l.Home) }, func(c *contract.Limits, v float64) { c.HomeMB = int64(v) }},
	{"tmp", "limits.tmp_mb", "MiB", 512, 4096, func(l *limits) (float64, bool) { return num(l.Tmp) }, func(c *contract.Limits, v float64) { c.TmpMB = int64(v) }},
	{"shm", "limits.shm_mb", "MiB", 64, 1024, func(l *limits) (float64, bool) { return num(l.Shm) }, func(c *contract.Limits, v float64) { c.ShmMB = int64(v) }},
	{"files", "limits.files", "", 200000, 2000000, func(l *limits) (float64, bool) { return num(l.Files) }, func(c *contract.Limits, v float64) { c.Files = int64(v) }},
	{"log", "limits.log_mb", "MiB", 64, 1024, func(l *limits) (float64, bool) { return num(l.Log) }, func(c *contract.Limits, v float64) { c.LogMB = int64(v) }},
	{"timeout", "limits.timeout_sec", "s", 900, 21600, func(l *limits) (float64, bool) { return num(l.Timeout) }, func(c *contract.Limits, v float64) { c.TimeoutSec = int64(v) }},
	{"wait", "limits.wait_sec", "s", 1800, 259200, func(l *limits) (float64, bool) { return num(l.Wait) }, func(c *contract.Limits, v float64) { c.WaitSec = int64(v) }},
	{"cost_usd", "limits.cost_usd", "", 0, 25, func(l *limits) (float64, bool) { return num(l.CostUSD) }, func(c *contract.Limits, v float64) { c.CostUSD = v }},
}

func num[T ~int64 | ~float64](p *T) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return float64(*p), true
}

// show writes an amount as a person reads it: "4096MiB", "900s", "2".
func (f limitField) show(v float64) string {
	return strconv.FormatFloat(v, 'f', -1, 64) + f.unit
}

// mayBeZero says which limits have a meaning at zero.
func (f limitField) mayBeZero() bool { return f.key == "wait" || f.key == "cost_usd" }

// limits fills the contract's limits: the profile's, else the standard, never
// more than the ceiling's.
func (d *deriver) limits() {
	own, top := d.profile.keys.Limits, d.cap.keys.Limits
	for _, f := range limitFields {
		v, why := f.standard, "standard"
		if own != nil {
			if said, ok := f.get(own); ok {
				v, why = said, d.source("limits."+f.key)
			}
		}
		causes := []string{why}
		most := f.most
		if top != nil {
			if said, ok := f.get(top); ok {
				most = said
			}
		}
		if f.key == "timeout" {
			if asked := d.in.Task.Asked.TimeoutSec; asked > 0 && float64(asked) <= most {
				v, causes = float64(asked), []string{"asked by --timeout"}
			} else if asked > 0 {
				d.refuse(CodeAskedTooMuch, fmt.Sprintf("--timeout asks for %s and the ceiling gives %s (%s)", f.show(float64(asked)), f.show(most), d.capSource("limits."+f.key)), "ask for less, or raise timeout in the ceiling")
			}
		}
		if v > most {
			causes = append(causes, fmt.Sprintf("%s, cut to %s by %s", f.show(v), f.show(most), d.capSource("limits."+f.key)))
			v = most
		}
		f.set(&d.c.Limits, v)
		d.because(f.field, f.show(v), causes...)
	}
	if l := d.c.Limits; l.DiskMB+l.HomeMB+l.TmpMB+l.ShmMB > l.MemoryMB {
		d.note("limits.memory_mb",
			"less than disk, home, tmp and shm together, which live in memory; filling them ends the command as out of memory")
	}
}
