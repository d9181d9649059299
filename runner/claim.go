package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A run that is alive holds an exclusive lock on the file "lock" of its
// directory below the state directory. The kernel drops the lock however the
// process ends, so "is this run alive?" never depends on a pid or a clock.
const (
	lockName    = "lock"
	socketsName = "s" // short: a socket's path has at most 107 bytes
	holdName    = "h"
	scratchName = "scratch"
	warmPrefix  = "warm_" // of a sandbox that waits for its run
)

// Claim is a run's directory on this machine while the run is alive.
type Claim struct {
	Dir     string // host directory of the run, 0700
	Sockets string // mounted into the sandbox
	Hold    string // mounted into the holder alone: the workload must not be able to pose as it
	Scratch string // bare repository and spools
	State   string // names this state directory, see stateName
	lock    *os.File
}

// NewClaim makes and locks the directory of a run, which has its id, or of a
// sandbox that waits for one. The state directory's own lock
// is held meanwhile, so that a sweep never sees a directory half made.
func NewClaim(stateDir, name string) (*Claim, error) {
	unlock, err := lockState(stateDir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	state, err := nameState(stateDir, name)
	if err != nil {
		return nil, err
	}
	c := &Claim{Dir: filepath.Join(stateDir, name), State: state}
	c.Sockets, c.Hold, c.Scratch = filepath.Join(c.Dir, socketsName), filepath.Join(c.Dir, holdName), filepath.Join(c.Dir, scratchName)
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("claiming run directory: %v", err)
	}
	c.lock, err = tryLock(filepath.Join(c.Dir, lockName), true)
	if err == nil && c.lock == nil {
		err = errors.New("another process holds it")
	}
	if err == nil {
		err = os.Mkdir(c.Scratch, 0o700)
	}
	for _, dir := range []string{c.Sockets, c.Hold} { // the sandbox's uid passes through these alone
		if err == nil {
			err = errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755))
		}
	}
	if err != nil {
		os.RemoveAll(c.Dir)
		return nil, fmt.Errorf("claiming run directory %s: %v", c.Dir, err)
	}
	return c, nil
}

// Release removes the directory and ends the claim.
func (c *Claim) Release() error {
	err := os.RemoveAll(c.Dir)
	return errors.Join(err, c.lock.Close())
}

// Alive says whether the run of these labels is alive, for [Engine.Reap]. That
// its directory is not there proves nothing by itself: a process in another
// mount namespace does not see it. So a run whose state directory is not the
// one that this process sees, or that it may not look into, counts as alive
// until its deadline has passed.
func Alive(now time.Time) func(Labels) bool {
	return func(l Labels) bool {
		held, err := lockHeld(filepath.Join(l[LabelRunDir], lockName))
		if err == nil {
			return held
		}
		if errors.Is(err, fs.ErrNotExist) && l[LabelState] != "" && stateName(filepath.Dir(l[LabelRunDir])) == l[LabelState] {
			return false
		}
		deadline, err := strconv.ParseInt(l[LabelDeadline], 10, 64)
		return err == nil && now.Unix() < deadline
	}
}

// stateName is what tells one state directory from another at the same path:
// the id of its first run, in its lock file. "" when there is none to see.
func stateName(stateDir string) string {
	text, err := os.ReadFile(filepath.Join(stateDir, lockName))
	if err != nil {
		return ""
	}
	return string(text)
}

// nameState gives a new state directory its name; the caller holds its lock.
func nameState(stateDir, runID string) (string, error) {
	if name := stateName(stateDir); name != "" {
		return name, nil
	}
	if err := os.WriteFile(filepath.Join(stateDir, lockName), []byte(runID), 0o600); err != nil {
		return "", fmt.Errorf("naming state directory: %v", err)
	}
	return runID, nil
}

// SweepState removes the directories of dead runs and returns how many.
func SweepState(stateDir string) (int, error) {
	unlock, err := lockState(stateDir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	dirs, err := claimed(stateDir)
	if err != nil {
		return 0, fmt.Errorf("sweeping state directory: %v", err)
	}
	removed := 0
	for _, dir := range dirs {
		if held, err := lockHeld(filepath.Join(dir, lockName)); held || err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return removed, fmt.Errorf("sweeping state directory: %v", err)
		}
		removed++
	}
	return removed, nil
}

// claimed are the directories of all claims, of the dead too.
func claimed(stateDir string) ([]string, error) {
	entries, err := os.ReadDir(stateDir)
	var dirs []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "run_") || strings.HasPrefix(e.Name(), warmPrefix) {
			dirs = append(dirs, filepath.Join(stateDir, e.Name()))
		}
	}
	return dirs, err
}

func lockState(stateDir string) (unlock func() error, err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("making state directory: %v", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking state directory: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking state directory: %v", err)
	}
	return f.Close, nil
}

// tryLock returns nil and no error when another process holds the lock.
func tryLock(path string, create bool) (*os.File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

func lockHeld(path string) (bool, error) {
	f, err := tryLock(path, false)
	if err != nil {
		return false, err
	}
	if f == nil {
		return true, nil
	}
	return false, f.Close()
}

// Users of sandboxes come from a range that no distribution assigns to people
// or services and that fits a ustar header (at most 2097151).
const (
	firstUID = 1_100_000
	uidCount = 900_000
)

// uidName is the file of a run's directory that says which uid it took.
const uidName = "uid"

// takeUID draws a uid that no live run of this state directory has and writes
// it into the claim: the kernel counts processes and inotify instances per uid
// over all containers, so that a shared one would let one run starve another.
func (c *Claim) takeUID(rand io.Reader) (int, error) {
	state := filepath.Dir(c.Dir)
	unlock, err := lockState(state)
	if err != nil {
		return 0, err
	}
	defer unlock()
	dirs, err := claimed(state)
	if err != nil {
		return 0, fmt.Errorf("drawing a uid: %v", err)
	}
	var taken []int
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, uidName))
		if err != nil {
			continue // its run has just ended
		}
		if n, err := strconv.Atoi(string(text)); err == nil {
			taken = append(taken, n)
		}
	}
	uid, err := drawUID(rand, taken)
	if err != nil {
		return 0, err
	}
	return uid, os.WriteFile(filepath.Join(c.Dir, uidName), []byte(strconv.Itoa(uid)), 0o600)
}

func drawUID(rand io.Reader, taken []int) (int, error) {
	var b [4]byte
	for range 1000 {
		if _, err := io.ReadFull(rand, b[:]); err != nil {
			return 0, fmt.Errorf("drawing a uid: %v", err)
		}
		n := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		if uid := firstUID + int(n%uidCount); !slices.Contains(taken, uid) {
			return uid, nil
		}
	}
	return 0, errors.New("drawing a uid: none is free")
}
