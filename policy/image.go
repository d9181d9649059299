package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// ImageRefs are the image references whose facts the snapshot must hold for
// this input: the one that the task asks for, else those of every profile that
// a rule, the default or the task could choose. The list is sorted. The
// snapshot of the input is not looked at; it does not exist yet.
func ImageRefs(in Input) []string {
	if in.Task.Asked.Image != "" {
		return []string{in.Task.Asked.Image}
	}
	if in.Policy == nil || in.Policy.IsCeiling() {
		return nil
	}
	var refs []string
	for name, m := range in.Policy.profiles {
		if m.keys.Image != nil && (in.Task.Profile == "" || in.Task.Profile == name) {
			refs = append(refs, *m.keys.Image)
		}
	}
	return slices.Compact(sorted(refs))
}

// image pins the image to a digest that the engine confirmed.
func (d *deriver) image() {
	ref, why := d.in.Task.Asked.Image, "asked by --image"
	if ref == "" {
		if d.profile.keys.Image == nil {
			d.refuse(CodeImageMissing, "profile "+d.profile.name+" has no image", "write image: NAME@sha256:… or say --image REF")
			return
		}
		ref, why = *d.profile.keys.Image, d.source("image")
	}
	if err := contract.CheckImageRef(ref); err != nil {
		d.refuse(CodeAskedInvalid, "--image "+err.Error(), "")
		return
	}
	pinned := contract.RefDigest(ref)
	if pinned == "" && !d.local {
		d.refuse(CodeImageUnpinned, fmt.Sprintf("the image %s is named by tag (%s)", ref, why), "write NAME@sha256:…; a tag is accepted for local runs only")
		return
	}
	fact, ok := d.in.Snapshot.Images[ref]
	if !ok {
		d.refuse(CodeImageMissing, fmt.Sprintf("the image %s is not on this machine", ref), imageHint(ref))
		return
	}
	d.pin(ref, pinned, fact, why)
}

func (d *deriver) pin(ref, pinned string, fact contract.ImageFact, why string) {
	for _, vol := range fact.Volumes {
		if namesEngineSocket(vol) {
			d.refuse(CodeSocket, fmt.Sprintf("the image %s declares the volume %s: it asks for the container engine's socket", ref, clip(vol)), "use an image without it")
			return
		}
	}
	img := contract.Image{Ref: ref, Digest: fact.ID, DigestKind: contract.DigestImageID}
	switch {
	case pinned == "":
		why += "; a tag, pinned to the image id that the engine has"
	case pinned == ref && pinned == fact.ID:
		why += "; an image id"
	case hasDigest(fact.RepoDigests, pinned):
		img.Digest, img.DigestKind = pinned, contract.DigestRepo
		why += "; pinned by its repository digest"
	default:
		d.refuse(CodeImageMismatch, fmt.Sprintf("the engine's image for %s has neither that id nor that repository digest", ref), "pull it again by that digest")
		return
	}
	d.c.Image = img
	d.because("image", ref+" = "+img.Digest, why)
}

// hasDigest says whether one of NAME@DIGEST has the digest.
func hasDigest(repoDigests []string, digest string) bool {
	return slices.ContainsFunc(repoDigests, func(r string) bool {
		_, d, ok := strings.Cut(r, "@")
		return ok && d == digest
	})
}

func imageHint(ref string) string {
	if ref == BuiltinImage {
		return "run: make sandbox-image"
	}
	return "pull or build it first, such as with: docker pull " + ref
}
