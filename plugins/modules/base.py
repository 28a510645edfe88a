#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: base
short_description: Puts the version of a tree on the target that measured copies bring up to date
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies a directory into the scratch folder of the target and compares the copy with the source by checksums. A copy
    method with O(ignore:update=true) begins with a duplicate of it each time.
  - It goes when M(linkops.bulkcopy.scratch) removes the folder.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
attributes:
  check_mode:
    support: full
    details:
      - Says whether the version lies there, and changes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A version that lies there, whole, is left as it is.

options:
  src:
    description:
      - Directory on the host that the task runs on.
    type: path
    required: true
  manifest:
    description:
      - File on the source, written by M(linkops.bulkcopy.tree_info), with checksums that stand while a file's size, times
        and inode are as they were.
    type: path
  dest:
    description:
      - The scratch folder on the target, with its marker.
    type: path
    required: true
  name:
    description:
      - What to call the version there.
    type: str
    required: true
notes:
  - The module runs on the source and pushes; use C(delegate_to) or a play over the sources.
seealso:
  - module: linkops.bulkcopy.scratch
  - module: linkops.bulkcopy.dataset
"""

EXAMPLES = r"""
- name: Put version 1 on the target
  linkops.bulkcopy.base:
    src: /var/tmp/linkops-bulkcopy/data/small
    dest: /var/tmp/linkops-bulkcopy/scratch
    name: small
    address: 198.18.1.2
  delegate_to: dc1-a
"""

RETURN = r"""
base:
  description: The version as it lies on the target. In check mode, as it would.
  returned: success
  type: dict
  contains:
    path:
      description: Where.
      type: str
    files:
      description: How many files it has.
      type: int
    bytes:
      description: The sum of their sizes.
      type: int
"""

import os
import re
import socket
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent, _record, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import (
    CONNECTION_OPTIONS,
    die_with_controller,
    known_manifest,
    refuse_without_room,
    ssh_of,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._pipeline import Pipeline, adopt_orphans, first_cause
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import WORK_LIMIT_S, Ended, Target


def program(name: str) -> str:
    """The path of a program here. Raises C(Ended)."""
    path = _agent.which([name])[name]
    if path is None:
        raise Ended("unsupported", f"the source has no {name}: install it there")
    return path


def send(pipeline: Pipeline) -> None:
    """Run it to its end. Raises C(Ended) with what the stage to blame says."""
    try:
        pipeline.start()
    except OSError as error:
        raise Ended("failed", f"the source cannot start {pipeline.stages[0][0]}: {error.strerror}") from error
    if not pipeline.wait(WORK_LIMIT_S):
        pipeline.kill()
    failed = first_cause(pipeline.results)
    if failed is not None:
        said = " ".join(_record.escape(failed.stderr).split())
        raise Ended("failed", f"{failed.argv[0]} ended with {failed.rc}: {said or 'no message'}")


def whole(target: Target, tree: str, source: _tree.Manifest, uid: int) -> list[str]:
    """What differs between the source and the version on the target; empty where it is the same."""
    summary = target.request("scan", WORK_LIMIT_S, tree=tree, hash_content=True)
    if not summary["unreadable"] and _tree.quick_match(source, summary["digest"], summary["meta_digest"]):
        return []
    copy = _tree.unpack(target.request("manifest_rows", WORK_LIMIT_S)["packed"])
    compared = _tree.compare(source, copy, _tree.SHA256, [] if uid == 0 else [_tree.OWNER])
    lost = [
        f"{kind} of {number} names" for kind, number in compared.not_kept.items() if uid == 0 or kind != _tree.OWNER
    ]
    return compared.mismatches + lost


def put(
    params: dict[str, Any], target: Target, check_mode: bool, running: list[Pipeline]
) -> tuple[bool, dict[str, Any]]:
    """Whether anything was, or would be, done; and the version. What is started is added to C(running) first. Raises
    C(Ended)."""
    hello = target.open()
    place = target.request("examine", dest=params["dest"], scratch=True, token=params["scratch_token"])
    tree = os.path.join(params["dest"], _agent.BASE, params["name"])
    source = _tree.scan(params["src"], True, known_manifest(params["manifest"]))
    base = {"path": tree, "files": source.files, "bytes": source.bytes}
    if params["name"] in place["bases"] and not whole(target, tree, source, hello["uid"]):
        return False, base
    if params["name"] not in place["bases"]:
        refuse_without_room(source, place["room"], target.name, params["dest"])
    if check_mode:
        return True, base
    target.request("make_base", WORK_LIMIT_S, dest=params["dest"], base=params["name"])
    tar = program("tar")
    # Times to the nanosecond, so that a tool that compares them sees the same file.
    precise = ["--format=posix"] if "GNU tar" in _agent.ask([tar, "--version"])["output"] else []
    receive = ["tar", "-C", tree, "-xpf", "-"]
    sender = [tar, *precise, "-C", params["src"], "-cf", "-", "--", "."]
    running.append(Pipeline([sender, target.ssh.argv(program("ssh"), receive)]))
    send(running[-1])
    differs = whole(target, tree, source, hello["uid"])
    if differs:
        raise Ended(
            "failed", f"{len(differs)} things differ between {params['src']} and {tree}, the first: {differs[0]}"
        )
    target.request("flush", WORK_LIMIT_S, dest=tree)
    return True, base


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            CONNECTION_OPTIONS,
            src={"type": "path", "required": True},
            manifest={"type": "path"},
            dest={"type": "path", "required": True},
            name={"type": "str", "required": True},
        ),
        supports_check_mode=True,
    )
    params = module.params
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", params["name"]):
        module.fail_json(msg=f"name {params['name']!r} is not one: use letters, digits, dots, hyphens and underscores")
    name = params["target_name"] or params["address"]
    adopt_orphans()
    try:
        target = Target(ssh_of(params), program("ssh"), params["target_python"], name)
    except Ended as ended:
        module.fail_json(msg=ended.message, status=ended.status)
    running: list[Pipeline] = []

    def end_all() -> None:
        for pipeline in running:
            pipeline.kill()
        target.close()

    die_with_controller(end_all)
    try:
        changed, base = put(params, target, module.check_mode, running)
    except Ended as ended:
        source_name = params["source_name"] or socket.gethostname()
        module.fail_json(msg=f"from {source_name} to {name}: {ended.message}", status=ended.status)
    except OSError as error:
        module.fail_json(msg=f"cannot read {params['src']}: {error.strerror}", status="failed")
    finally:
        end_all()
    module.exit_json(changed=changed, base=base)


if __name__ == "__main__":
    main()
