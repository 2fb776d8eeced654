"""The software bill of materials: what is in the program, as CycloneDX 1.6 in JSON."""

import json
import re
import time
import uuid

from tool import ROOT, PackageError, output

NPM = re.compile(r"^\| `(\S+\.js)` \| `(\S+)` (\S+), (\S+) \|", re.M)


def crates_of(target):
    """Returns the program's own crate, and all crates that are linked into it or expanded in it."""
    tree = ["cargo", "tree", "--locked", "-p", "playhouse", "-e", "normal", "--target", target]
    lines = output(*tree, "--prefix", "none", "-f", "{p}", cwd=ROOT).decode().splitlines()
    used = {tuple(line.split()[:2]) for line in lines if line}
    metadata = ["cargo", "metadata", "--locked", "--format-version", "1"]
    packages = json.loads(output(*metadata, "--filter-platform", target, cwd=ROOT))["packages"]
    found = [crate for crate in packages if (crate["name"], f"v{crate['version']}") in used]
    if len(found) != len(used):
        raise PackageError(f"cargo tree names {len(used)} crates, cargo metadata {len(found)}")
    found.sort(key=lambda crate: (crate["name"], crate["version"]))
    program = next(crate for crate in found if crate["name"] == "playhouse")
    return program, [crate for crate in found if crate is not program]


def checksums():
    """Returns the SHA-256 of each crate in Cargo.lock, by name and version."""
    lock = (ROOT / "Cargo.lock").read_text()
    block = r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"'
    return {(name, version): digest for name, version, digest in re.findall(block, lock)}


def component(crate, digests):
    """Returns the entry of a crate."""
    name, version = crate["name"], crate["version"]
    reference = f"pkg:cargo/{name}@{version}"
    entry = {"type": "library", "bom-ref": reference, "name": name, "version": version}
    if crate["description"]:
        entry["description"] = " ".join(crate["description"].split())
    if (name, version) in digests:
        entry["hashes"] = [{"alg": "SHA-256", "content": digests[name, version]}]
    if crate["license"]:
        # Older manifests separate licences by a slash.
        entry["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
    if crate["source"]:
        entry["purl"] = reference
    if crate["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": crate["repository"]}]
    return entry


def scripts():
    """Returns the entries of the page's scripts by others."""
    table = (ROOT / "src/server/page/vendor/README.md").read_text()
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{name.replace('@', '%40')}@{version}",
            "name": name,
            "version": version,
            "licenses": [{"expression": licence}],
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
        }
        for _, name, version, licence in NPM.findall(table)
    ]


def of(release):
    """Returns the SBOM of `release`."""
    digests = checksums()
    components = [component(crate, digests) for crate in release.crates] + scripts()
    program = {
        "type": "application",
        "bom-ref": f"playhouse@{release.version}-{release.target}",
        "name": "playhouse",
        "version": release.version,
        "description": release.description,
        "licenses": [{"expression": "Apache-2.0"}],
        "externalReferences": [{"type": "vcs", "url": release.repository}],
    }
    identity = f"{release.repository}/{release.commit}/{release.target}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch)),
            "component": program,
        },
        "components": components,
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def write(release, out):
    """Writes the SBOM into the folder `out`, and returns its path."""
    path = out / f"playhouse-{release.version}-{release.target}.cdx.json"
    path.write_bytes(release.files["share/doc/playhouse/playhouse.cdx.json"])
    return path
