#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tree_info
short_description: Lists a directory with the checksum of every file
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Reads a directory once and tells how many files, directories and bytes it has, how well it compresses, and a digest
    that is equal for equal trees.
  - The list can be kept, so that M(linkops.bulkcopy.tar_ssh) and the other copy methods need not read the source again
    to verify a copy.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
    details:
      - Reads, and keeps no list.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description:
      - The directory.
    type: path
    required: true
  manifest:
    description:
      - File to keep the list in, in a directory that exists. Checksums that are in it already are taken over for files
        whose size, times and inode are as they were.
    type: path
seealso:
  - module: linkops.bulkcopy.dataset
"""

EXAMPLES = r"""
- name: Look at the release before it is copied
  linkops.bulkcopy.tree_info:
    path: /srv/release
    manifest: /var/tmp/release.manifest
  register: release
"""

RETURN = r"""
tree:
  description: What the directory holds.
  returned: success
  type: dict
  contains:
    path:
      description: The directory, without symbolic links.
      type: str
    files:
      description: Number of regular files.
      type: int
    directories:
      description: Number of directories below it.
      type: int
    bytes:
      description: Sum of the sizes of the regular files.
      type: int
    compressibility:
      description:
        - Size of a sample of the content after compression, as a share of its size before. V(1.0) does not compress at
          all. Null for a tree without content.
      type: float
      sample: 0.31
    compressibility_basis:
      description: What compressed the sample, C(zstd -1), or C(zlib -1) where that program is missing. Null for a tree
        without content.
      type: str
      sample: zstd -1
    digest:
      description: SHA-256 over all names, kinds, sizes, checksums and link texts, in byte order.
      type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent, _fidelity, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import escape


def main() -> None:
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "manifest": {"type": "path"}},
        supports_check_mode=True,
    )
    path, manifest_path = module.params["path"], module.params["manifest"]
    if not os.path.isdir(path):
        module.fail_json(msg=f"there is no directory {path}: create the dataset or correct its path")
    known = None
    if manifest_path and os.path.exists(manifest_path):
        try:
            known = _tree.load(manifest_path)
        except (OSError, ValueError) as error:
            module.warn(f"the list in {manifest_path} is of no use and is made again: {error}")
    try:
        manifest = _tree.scan(path, True, known)
        # In a tree of hard cases some are unreadable on purpose.
        if manifest.unreadable and not _fidelity.is_made(path):
            first = sorted(manifest.unreadable)[0]
            module.fail_json(
                msg=f"{len(manifest.unreadable)} names in {path} cannot be read, the first is {escape(first)}: {manifest.unreadable[first]}"
            )
        changed = bool(manifest_path) and (known is None or known.entries != manifest.entries)
        if changed and not module.check_mode:
            _tree.save(manifest, manifest_path)
        readable = {name: entry for name, entry in manifest.entries.items() if name not in manifest.unreadable}
        compressed = _tree.compressibility(path, _tree.Manifest(readable), _agent.which(["zstd"])["zstd"])
    except OSError as error:
        module.fail_json(msg=f"cannot list {error.filename or path}: {error.strerror}")
    module.exit_json(
        changed=changed,
        tree={
            "path": os.path.realpath(path),
            "files": manifest.files,
            "directories": manifest.directories,
            "bytes": manifest.bytes,
            "compressibility": compressed.value,
            "compressibility_basis": compressed.basis,
            "digest": manifest.digest,
        },
    )


if __name__ == "__main__":
    main()
