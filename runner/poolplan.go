package runner

import "slices"

// key names an order for a warm sandbox; orders of one key are alike.
func (o WarmOrder) key() string {
	k, err := o.Shape.Key()
	if err != nil {
		return "" // which no sandbox has
	}
	return k + " " + o.Transport
}

// maxWanted bounds how many shapes a pool remembers.
const maxWanted = 32

// rewant moves order to the front.
func rewant(wanted []WarmOrder, order WarmOrder) []WarmOrder {
	out := append([]WarmOrder{order}, unwant(wanted, order)...)
	return out[:min(len(out), maxWanted)]
}

func unwant(wanted []WarmOrder, order WarmOrder) []WarmOrder {
	return keep(wanted, func(w WarmOrder) bool { return w.key() != order.key() })
}

func keep[T any](all []T, good func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return !good(t) })
}

// planPool decides, from the shapes that are wanted (named last first) and the
// keys of the sandboxes there are, which one to make next (nil for none) and
// how many of which to discard. What is kept never exceeds memory, and nothing
// is made before what is too much was discarded.
func planPool(wanted []WarmOrder, have []string, depth int, memory int64) (next *WarmOrder, surplus map[string]int) {
	surplus = map[string]int{}
	for _, k := range have {
		surplus[k]++
	}
	for _, w := range wanted {
		each := w.Shape.Limits.MemoryMB * mib
		for range depth {
			if each > memory {
				break
			}
			memory -= each
			if key := w.key(); surplus[key] > 0 {
				surplus[key]--
			} else if next == nil {
				next = &w
			}
		}
	}
	return next, surplus
}
