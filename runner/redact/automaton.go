package redact

// automaton is an Aho–Corasick automaton over byte patterns. Most of its states
// have one successor and keep just that; the root and the states that branch
// have a table. So a key of some kilobytes costs kilobytes, not megabytes.
// Aho, Corasick: Efficient string matching, CACM 18(6), 1975.
type automaton struct {
	fail  []int32
	depth []int32
	// longest is the length of the longest pattern that ends at a state, 0 if
	// none does.
	longest []int32
	only    []byte        // the byte that leads to next, without a table
	next    []int32       // 0 for none
	table   []*[256]int32 // nil for a state that does not branch
}

// trieNode is a state while patterns are still added; children is a list.
type trieNode struct {
	child, sibling int32
	b              byte
	depth, longest int32
}

func newAutomaton(patterns [][]byte) *automaton {
	trie := []trieNode{{}}
	for _, p := range patterns {
		at := int32(0)
		for _, b := range p {
			to := trie[at].child
			for to != 0 && trie[to].b != b {
				to = trie[to].sibling
			}
			if to == 0 {
				to = int32(len(trie))
				trie = append(trie, trieNode{sibling: trie[at].child, b: b, depth: trie[at].depth + 1})
				trie[at].child = to
			}
			at = to
		}
		trie[at].longest = trie[at].depth
	}
	n := len(trie)
	a := &automaton{
		fail: make([]int32, n), depth: make([]int32, n), longest: make([]int32, n),
		only: make([]byte, n), next: make([]int32, n), table: make([]*[256]int32, n),
	}
	a.link(trie)
	return a
}

// link visits states by depth, so that a state's fail is ready before it.
func (a *automaton) link(trie []trieNode) {
	queue := []int32{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		t := trie[s]
		a.depth[s] = t.depth
		a.longest[s] = max(t.longest, a.longest[a.fail[s]])
		if s == 0 || t.child != 0 && trie[t.child].sibling != 0 {
			a.table[s] = new([256]int32)
			if s != 0 {
				for b := range 256 {
					a.table[s][b] = a.step(a.fail[s], byte(b))
				}
			}
		}
		for c := t.child; c != 0; c = trie[c].sibling {
			if s != 0 {
				a.fail[c] = a.step(a.fail[s], trie[c].b)
			}
			queue = append(queue, c)
		}
		for c := t.child; c != 0; c = trie[c].sibling {
			if a.table[s] != nil {
				a.table[s][trie[c].b] = c
			} else {
				a.only[s], a.next[s] = trie[c].b, c
			}
		}
	}
}

// step is the state after b. Over a stream it does at most two moves for a byte.
func (a *automaton) step(s int32, b byte) int32 {
	for {
		if t := a.table[s]; t != nil {
			return t[b]
		}
		if a.only[s] == b && a.next[s] != 0 {
			return a.next[s]
		}
		s = a.fail[s]
	}
}
