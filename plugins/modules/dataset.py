#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset
short_description: Make a synthetic tree of files for benchmarks
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Makes a tree of files with a known shape on the host, and keeps it right.
  - Names, counts and sizes follow from the description alone, so that the same description gives the same tree on every
    host. The content is new each time. It comes from one C(dd) that reads C(/dev/urandom), however many the files.
  - A manifest with size, modification time and sha256 of every file is kept beside the tree, as
    C(<path>.dataset.json). By it a second run changes nothing, an interrupted run is completed (finished files are
    kept), and missing or damaged files are replaced.
  - Files get mode 0644 and directories mode 0755, whatever the umask.
  - Too little space or too few inodes are refused before the first byte is written.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
requirements:
  - C(dd) on the host.
options:
  path:
    description:
      - The tree, as an absolute path. Missing parents are made.
      - A directory that is not empty and was not made by this module is refused.
    type: path
    required: true
  name:
    description:
      - What results call the dataset. The default is the last part of O(path).
    type: str
  shape:
    description:
      - A standard description. Give this or O(parts) with O(state=present).
      - V(small) is 2000 files of 100 KB (200 MB).
      - V(large) is 200 files of 10 MB (2 GB).
      - V(tree) is 1.6 GB in 40700 files, like a software installation. 200 videos of 4.5 MB, 500 archives of 600 KB
        (log-normal, sigma 0.5) and 40000 text files of 10 KB (log-normal, sigma 1, from 0.6 to 60 KB) lie in up to
        three levels of directories. The text is compressible, a quarter of all bytes. The rest is not.
      - V(empty) is a directory with nothing in it.
      - V(fidelity) is a tree of hard cases, each in a directory of its own. Odd and long names, links, holes, special
        files, modes, times, extended attributes, ACLs. What this user or filesystem cannot have is left out, and said in
        the manifest. It has no O(scale), and is made anew where anything in it differs. Anything else in it is refused.
    type: str
    choices: [small, large, tree, empty, fidelity]
  parts:
    description:
      - The description of the tree, for shapes of one's own. Each part is a directory below O(path).
    type: list
    elements: dict
    suboptions:
      name:
        description: The directory of the part.
        type: str
        required: true
      files:
        description: How many files it has at O(scale=1).
        type: int
        required: true
      file_bytes:
        description: The size of each file in bytes, or the mean size where O(parts[].size_spread) is not 0.
        type: int
        required: true
      directories:
        description:
          - How many directories hold the files at O(scale=1). V(0) puts them into the part's own directory.
        type: int
        default: 0
      depth:
        description:
          - How many levels of directories lie between the part's own and the files, from 1 to 8.
          - All levels have about the same number of directories in each. Without O(parts[].directories) it counts for
            nothing.
        type: int
        default: 1
      compressible:
        description:
          - The share of each file that is text, from 0 to 1. C(gzip) packs the text about 3.7 to 1. The rest is random.
        type: float
        default: 0.0
      size_spread:
        description:
          - With V(0) all files have the same size. Otherwise sizes follow a log-normal distribution with this sigma (at
            most 3) in 50 steps, with the mean O(parts[].file_bytes).
        type: float
        default: 0.0
      suffix:
        description: The end of each file name.
        type: str
        default: .bin
  update_of:
    description:
      - A dataset made by this module. The tree becomes version 2 of it, in which the O(changes) share of the files differs.
        The others are copied, with their times.
    type: path
  changes:
    description:
      - For each kind of change the share of the files, from 0 to 1, at most 1 together. Of a share above 0 there is at
        least one file.
    type: dict
    suboptions:
      changed:
        description: The share that has new content of the same size, and a later time.
        type: float
        default: 0.0
      grew:
        description: The share that is a tenth longer, at its end.
        type: float
        default: 0.0
      appeared:
        description: How many files are new, each beside another and of its size, as a share of the files of O(update_of).
        type: float
        default: 0.0
      vanished:
        description: The share that is no longer there.
        type: float
        default: 0.0
  seed:
    description:
      - Chooses the files of O(changes); the same seed chooses the same.
    type: int
    default: 0
  scale:
    description:
      - Multiplies the number of files of each part (to the nearest whole number). Directories follow.
      - Where less than one file is left, there is one file, and it shrinks instead.
    type: float
    default: 1.0
  check:
    description:
      - How existing files are compared with the manifest.
      - V(sha256) reads every file. V(size-mtime) reads only those whose modification time has changed. After an
        interrupted run every file is read.
    type: str
    choices: [sha256, size-mtime]
    default: sha256
  state:
    description:
      - V(present) makes the tree, or completes and mends it. Whatever else lies in it is removed.
      - V(absent) removes the tree with its manifest. It refuses where the tree, or anything in it, was not made by this
        module.
    type: str
    choices: [present, absent]
    default: present
seealso:
  - module: linkops.bulkcopy.tree_info
"""

EXAMPLES = r"""
- name: Make the 2000 files of 100 KB
  linkops.bulkcopy.dataset:
    path: /var/tmp/linkops-bulkcopy/data/small
    shape: small

- name: Make a tree like a software installation, a tenth of its size
  linkops.bulkcopy.dataset:
    path: /var/tmp/linkops-bulkcopy/data/tree
    shape: tree
    scale: 0.1

- name: Make a tree of one's own
  linkops.bulkcopy.dataset:
    path: /srv/bench/mail
    name: mail
    parts:
      - name: messages
        files: 5000
        file_bytes: 20000
        directories: 50
        depth: 2
        compressible: 0.6
        size_spread: 1.2
        suffix: .eml
      - name: index
        files: 10
        file_bytes: 5000000

- name: Make a second version of the small files, in which 1 % differ
  linkops.bulkcopy.dataset:
    path: /var/tmp/linkops-bulkcopy/data/small-2
    update_of: /var/tmp/linkops-bulkcopy/data/small
    changes:
      changed: 0.004
      grew: 0.002
      appeared: 0.002
      vanished: 0.002

- name: Remove a dataset
  linkops.bulkcopy.dataset:
    path: /srv/bench/mail
    state: absent
"""

RETURN = r"""
dataset:
  description: The dataset and what was done to it. In check mode, what would be done.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: small
    path:
      description: The tree.
      type: str
      sample: /var/tmp/linkops-bulkcopy/data/small
    manifest:
      description: The manifest beside the tree.
      type: str
      sample: /var/tmp/linkops-bulkcopy/data/small.dataset.json
    files:
      description: How many files it has.
      type: int
      sample: 2000
    directories:
      description: How many directories lie below RV(dataset.path), which does not count itself.
      type: int
      sample: 1
    bytes:
      description: The sum of the sizes of the files.
      type: int
      sample: 200000000
    created:
      description: Files made that were not there.
      type: int
      sample: 2000
    replaced:
      description: Files made anew because they were damaged or the description changed.
      type: int
      sample: 0
    removed:
      description: Files and directories removed.
      type: int
      sample: 0
    elapsed_s:
      description: How long it took, in seconds.
      type: float
      sample: 1.2
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _fidelity


def argument_spec() -> dict[str, Any]:
    part = {
        "name": {"type": "str", "required": True},
        "files": {"type": "int", "required": True},
        "file_bytes": {"type": "int", "required": True},
        "directories": {"type": "int", "default": 0},
        "depth": {"type": "int", "default": 1},
        "compressible": {"type": "float", "default": 0.0},
        "size_spread": {"type": "float", "default": 0.0},
        "suffix": {"type": "str", "default": ".bin"},
    }
    return {
        "path": {"type": "path", "required": True},
        "name": {"type": "str"},
        "shape": {"type": "str", "choices": [*_dataset.SHAPES, _fidelity.SHAPE]},
        "parts": {"type": "list", "elements": "dict", "options": part},
        "update_of": {"type": "path"},
        "changes": {"type": "dict", "options": {kind: {"type": "float", "default": 0.0} for kind in _dataset.CHANGES}},
        "seed": {"type": "int", "default": 0},
        "scale": {"type": "float", "default": 1.0},
        "check": {"type": "str", "choices": ["sha256", "size-mtime"], "default": "sha256"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        mutually_exclusive=[("shape", "parts", "update_of")],
        required_if=[("state", "present", ("shape", "parts", "update_of"), True)],
        required_by={"update_of": "changes", "changes": "update_of"},
        supports_check_mode=True,
    )
    params = module.params
    started = time.monotonic()
    try:
        path = _dataset.check_path(params["path"])
        if params["name"] is not None:
            _dataset.check_name(params["name"], "dataset name")
        if params["state"] == "absent":
            kind = _fidelity if _fidelity.is_made(path) else _dataset
            result = kind.absent(path, dry_run=module.check_mode)
        elif params["shape"] == _fidelity.SHAPE:
            result = _fidelity.present(path, dry_run=module.check_mode)
        elif params["update_of"] is not None:
            result = _dataset.present_update(
                path, params["update_of"], params["changes"], params["seed"], params["check"], dry_run=module.check_mode
            )
        else:
            if params["shape"] is not None:
                parts = _dataset.shape(params["shape"])
            else:
                parts = tuple(_dataset.Part(**part) for part in params["parts"])
                _dataset.check_parts(parts)
            result = _dataset.present(path, parts, params["scale"], params["check"], dry_run=module.check_mode)
    except _dataset.DatasetError as exc:
        module.fail_json(msg=str(exc))
    facts = result._asdict()
    changed = facts.pop("changed")
    facts.update(
        name=params["name"] or path.rsplit("/", 1)[1],
        path=path,
        manifest=path + _dataset.MANIFEST_SUFFIX,
        elapsed_s=round(time.monotonic() - started, 3),
    )
    module.exit_json(changed=changed, dataset=facts)


if __name__ == "__main__":
    main()
