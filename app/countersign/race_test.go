//go:build race

package main

// raceEnabled: the tests run with the race detector, and so does the program
// that they start.
const raceEnabled = true
