package policy

import (
	"reflect"
	"strings"
)

// merged is a profile with everything it extends laid over each other. T is
// [profile] or [ceilingProfile].
type merged[T any] struct {
	name  string
	chain []string // itself, then what it extends, nearest first
	keys  T
	// from maps each key that is set ("image", "limits.memory") to the profile
	// of the chain that set it.
	from map[string]string
}

// merge lays the chain of each profile over each other. Maps (limits, outputs,
// env) merge by key; everything that carries authority (network, secrets,
// tools, roots) replaces what it overrides as a whole, so that no list is ever
// the union of two.
func merge[T any](profiles map[string]T, chains map[string][]string) map[string]*merged[T] {
	out := make(map[string]*merged[T], len(chains))
	for name, chain := range chains {
		m := &merged[T]{name: name, chain: chain, from: map[string]string{}}
		for i := len(chain) - 1; i >= 0; i-- {
			p := profiles[chain[i]]
			overlay(reflect.ValueOf(&m.keys).Elem(), reflect.ValueOf(p), chain[i], "", m.from)
		}
		out[name] = m
	}
	return out
}

func overlay(dst, src reflect.Value, name, prefix string, from map[string]string) {
	for i := range src.NumField() {
		key, _, _ := strings.Cut(src.Type().Field(i).Tag.Get("yaml"), ",")
		s, d := src.Field(i), dst.Field(i)
		if s.IsNil() {
			continue
		}
		from[prefix+key] = name
		switch s.Interface().(type) {
		case *limits, *outputs:
			if d.IsNil() {
				d.Set(reflect.New(d.Type().Elem()))
			}
			overlay(d.Elem(), s.Elem(), name, key+".", from)
		case map[string]string:
			if d.IsNil() {
				d.Set(reflect.MakeMap(d.Type()))
			}
			for it := s.MapRange(); it.Next(); {
				d.SetMapIndex(it.Key(), it.Value())
			}
		default:
			d.Set(s)
		}
	}
}

// chainsOf follows extends from each profile. A profile that extends what does
// not exist or itself is reported and has no chain.
func chainsOf[T any](v *validator, profiles map[string]T, extends func(T) *string) map[string][]string {
	names := make([]string, 0, len(profiles))
	for name := range profiles {
		names = append(names, name)
	}
	sorted(names)
	chains := make(map[string][]string, len(profiles))
	for _, name := range names {
		v.is(contractName(name), "profiles", name)
		chain, at := []string{name}, name
		for extends(profiles[at]) != nil {
			next := *extends(profiles[at])
			if _, ok := profiles[next]; !ok {
				if at == name { // reported once, where it is written
					v.suggest(nearest(next, names), "there is no profile %q", []any{clip(next)}, "profiles", name, "extends")
				}
				chain = nil
				break
			}
			if contains(chain, next) {
				v.add("profile %s extends itself: %s", []any{name, strings.Join(append(chain, next), " → ")}, "profiles", name, "extends")
				chain = nil
				break
			}
			chain, at = append(chain, next), next
		}
		if chain != nil {
			chains[name] = chain
		}
	}
	return chains
}
