package main

import "fmt"

// many is how many connections make requests at once where it is not one.
const many = 200

// echoes are requests on one connection, and five times as many on many of them.
func echoes(requests int) []order {
	return []order{
		{Kind: "echo", Connections: 1, Requests: requests},
		{Kind: "echo", Connections: many, Requests: 5 * requests / many},
	}
}

// quantile picks one of a result's.
type quantile struct {
	name string
	of   func(result) float64
}

func quantilesShown() []quantile {
	return []quantile{
		{"p50", func(r result) float64 { return r.P50 }},
		{"p99", func(r result) float64 { return r.P99 }},
	}
}

// latency compares what the ways add to a request on a kept connection: what it
// takes there less what it takes on the host itself, all measured in turn.
func (e *egressBench) latency(name string, ours, theirs *way, rounds, requests int, goal float64) error {
	direct, err := e.hostWay("direct", "")
	if err != nil {
		return err
	}
	defer direct.close()
	for _, o := range echoes(requests) {
		results, err := inRounds(rounds, o, ours, theirs, direct)
		if err != nil {
			return err
		}
		for _, q := range quantilesShown() {
			var added, our, their, bare []float64
			for _, r := range results {
				x, y, z := q.of(r[0]), q.of(r[1]), q.of(r[2])
				added, our, their, bare = append(added, (x-z)/(y-z)), append(our, x), append(their, y), append(bare, z)
			}
			e.line(fmt.Sprintf("%s%s added to a request, %d conn. / %s", name, q.name, o.Connections, theirs.name), median(added), "", false, goal,
				fmt.Sprintf("%s µs / %s µs; without either %s µs", figure(median(our)), figure(median(their)), figure(median(bare))))
		}
	}
	return nil
}

// inRounds has each of the ways perform an order in turn; the first round is
// thrown away.
func inRounds(n int, o order, ways ...*way) (rounds [][]result, err error) {
	for range n + 1 {
		var round []result
		for _, w := range ways {
			r, err := w.ask(o)
			if err != nil {
				return nil, err
			}
			round = append(round, r)
		}
		rounds = append(rounds, round)
	}
	return rounds[1:], nil
}

// setUps compares connections made one after the other, from the call to the
// first answer; ours looks the name up twice, inside and outside.
func (e *egressBench) setUps(ours, theirs *way) error {
	median := func(w *way) func() (float64, error) {
		return func() (float64, error) {
			r, err := w.ask(order{Kind: "setup", Requests: 200})
			return r.P50, err
		}
	}
	our, their, ratio, err := inTurn(e.longPairs(), median(ours), median(theirs))
	if err != nil {
		return err
	}
	e.line("connection and first answer, p50 / "+theirs.name, ratio, "", false, 0, fmt.Sprintf("%s µs / %s µs", figure(our), figure(their)))
	return nil
}
