// Package docker makes sealed containers on a local Docker Engine: it is the
// [runner.Engine] of the isolations runc and runsc.
//
// It decides nothing about a run. A [runner.Spec] arrives, and the package
// either gives every control in it or refuses; a control is never left out,
// replaced by a weaker one, or turned on later. Three places keep that promise:
//
//   - Preflight refuses an engine that cannot give the controls at all, by name
//     and with what to do about it.
//   - Create refuses a Spec that would open the sandbox (uid 0, a writable bind
//     of the host, the engine's own socket, an unsized mount, a path of ours
//     left unmasked), and any warning of the engine that is not known to be
//     without meaning here.
//   - Create then reads the whole configuration back and compares every field
//     of it, also those that were left at zero: an engine, a default in its
//     configuration, or the image changed nothing, or the container is removed.
//
// What always holds of a container that Create returned: no network interface
// but loopback, no capability, no new privileges, the seccomp profile of
// [Profile], a read-only root, no device, no host namespace, sized mounts only,
// and nothing of the image but its files (see image.go).
//
// The package never pulls an image, never starts or configures an engine, never
// talks to one over a network, never runs anything of the host, and reads no
// environment variable. It writes to the host only through the engine.
//
// Known to be weaker, and stated rather than hidden: under runsc the inode
// bound of a tmpfs is ignored, and a sandbox that dockerd has forgotten is not
// found by Reap (it looks where Docker looks; `runsc list` shows such leftovers).
// What a bind mount shows is the host's own file system with its own flags. And
// runc 1.1 gives a tmpfs the mode of the directory that the image has in its
// place, whatever mode was asked for; its owner, size and flags stay ours, so a
// mount that the sandbox must be able to write is an owned one.
package docker
