package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Bounds of the files.
const (
	maxHostsFile = 8 << 20 // bytes: block lists are kept in it
	maxConfFile  = 64 << 10
	maxServers   = 3 // as C libraries do, resolv.conf(5)
)

// inHosts returns the addresses that the hosts file, hosts(5), has for host. No
// file is an empty one.
func inHosts(file, host string) ([]netip.Addr, error) {
	var found []netip.Addr
	err := eachLine(file, maxHostsFile, func(fields []string) {
		addr, err := netip.ParseAddr(fields[0])
		if err != nil || len(found) == maxAddresses || slices.Contains(found, addr) {
			return
		}
		for _, name := range fields[1:] {
			if asciiLower(name) == host {
				found = append(found, addr)
				return
			}
		}
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return found, err
}

// nameServers returns the first servers of a resolv.conf; its options do not
// count.
func nameServers(file string) ([]netip.AddrPort, error) {
	var found []netip.AddrPort
	err := eachLine(file, maxConfFile, func(fields []string) {
		if fields[0] != "nameserver" || len(fields) < 2 || len(found) == maxServers {
			return
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			found = append(found, netip.AddrPortFrom(addr, 53))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%w; name a server with --resolver", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s names no server; name one with --resolver", file)
	}
	return found, nil
}

// eachLine gives the fields of each line of a file that has any, without
// comments.
func eachLine(file string, limit int64, use func(fields []string)) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading name settings: %w", err)
	}
	defer f.Close()
	in := bufio.NewScanner(io.LimitReader(f, limit))
	for in.Scan() {
		line, _, _ := strings.Cut(in.Text(), "#")
		line, _, _ = strings.Cut(line, ";")
		if fields := strings.Fields(line); len(fields) > 0 {
			use(fields)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading name settings: %s: %w", file, err)
	}
	return nil
}
