#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scratch
short_description: Make or remove the scratch folder of a benchmark on a target
version_added: 0.1.0
description:
  - Makes the folder that benchmark copies go to, with a marker file in it that says whose it is, or removes it.
  - A folder that is not empty and has no marker is somebody's data. It is refused and never touched.
  - Nothing is removed unless the marker holds the token that was given.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description: The folder. Missing parents are made, and removed again with it where they are empty then.
    type: path
    required: true
  token:
    description:
      - A random text of the campaign. With O(state=present) a marked folder that an earlier campaign left is emptied
        and taken over.
    type: str
    required: true
  state:
    description: Whether the folder is wanted.
    type: str
    choices: [present, absent]
    default: present
author:
  - linkops.bulkcopy contributors
"""

EXAMPLES = r"""
- name: Make the scratch folder
  linkops.bulkcopy.scratch:
    path: /var/tmp/linkops-bulkcopy/scratch
    token: "{{ bulkcopy_token }}"

- name: Remove it
  linkops.bulkcopy.scratch:
    path: /var/tmp/linkops-bulkcopy/scratch
    token: "{{ bulkcopy_token }}"
    state: absent
"""

RETURN = r"""
path:
  description: The folder.
  type: str
  returned: always
free:
  description: What the file system there has left for this user.
  type: dict
  returned: when O(state=present), null in check mode where the folder is missing
  contains:
    bytes:
      description: Free bytes.
      type: int
    inodes:
      description: Free inodes, null where the file system has no fixed number.
      type: int
boot_id:
  description: Which kernel runs on the host, null where that cannot be told.
  type: str
  returned: when O(state=present)
msg:
  description: Why a folder was left alone.
  type: str
  returned: when O(state=absent) and the folder is not ours
"""

import errno
import json
import os
import stat
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _counters
from ansible_collections.linkops.bulkcopy.plugins.module_utils._agent import MARKER, read_marker, remove_tree


class ScratchError(Exception):
    """One sentence: why the folder cannot be used."""


def write_marker(path: str, data: dict[str, Any]) -> None:
    """Writes the marker whole, in one step."""
    temporary = os.path.join(path, MARKER + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(data, file)
    os.replace(temporary, os.path.join(path, MARKER))


def look(path: str) -> os.stat_result | None:
    """The folder's status, null where there is none; refuses what is not a folder of this user."""
    if not os.path.isabs(path) or os.path.normpath(path) in ("/", "//"):
        raise ScratchError(f"the scratch folder {path} must be an absolute path below /.")
    try:
        found = os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    if not stat.S_ISDIR(found.st_mode):
        raise ScratchError(f"{path} exists and is not a folder: choose another with bulkcopy_scratch_dir.")
    if found.st_uid != os.geteuid():
        raise ScratchError(
            f"{path} belongs to user {found.st_uid}, but the copy runs as user {os.geteuid()}: remove it, or choose "
            "another with bulkcopy_scratch_dir."
        )
    return found


def missing_parents(path: str) -> list[str]:
    """The parents that must be made, the outermost first."""
    missing = []
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    return missing[::-1]


def present(path: str, token: str, check_mode: bool) -> bool:
    """Makes the folder ours; says whether anything changed."""
    found = look(path)
    if found is None:
        if check_mode:
            return True
        made = missing_parents(path)
        for parent in made:
            os.mkdir(parent, 0o755)
        os.mkdir(path, 0o700)
        write_marker(path, {"token": token, "made": made})
        return True
    marker = read_marker(path)
    if marker is None and os.listdir(path):
        raise ScratchError(
            f"{path} exists, is not empty and was not made by linkops.bulkcopy: empty it, or choose another with "
            "bulkcopy_scratch_dir."
        )
    if marker is not None and marker["token"] == token and stat.S_IMODE(found.st_mode) == 0o700:
        return False
    if not check_mode:
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            if name != MARKER:
                remove(os.path.join(path, name))
        write_marker(path, {"token": token, "made": (marker or {}).get("made", [])})
    return True


def absent(path: str, token: str, check_mode: bool) -> str:
    """Removes the folder if it is ours. Returns C(removed), C(missing) or why it was left alone."""
    found = look(path)
    if found is None:
        return "missing"
    marker = read_marker(path)
    if marker is None or marker["token"] != token:
        return f"{path} was left alone: it is not of this campaign."
    if not check_mode:
        remove_tree(path)
        made = marker.get("made")
        for parent in reversed(made if isinstance(made, list) else []):
            try:
                os.rmdir(parent)
            except OSError:
                break
    return "removed"


def remove(path: str) -> None:
    """Removes a file or a tree; a link is removed, not followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    else:
        os.unlink(path)


def free(path: str) -> dict[str, int | None] | None:
    """What is left on the file system, for this user."""
    try:
        room = os.statvfs(path)
    except OSError:
        return None
    privileged = os.geteuid() == 0
    return {
        "bytes": room.f_frsize * (room.f_bfree if privileged else room.f_bavail),
        "inodes": (room.f_ffree if privileged else room.f_favail) if room.f_files else None,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "token": {"type": "str", "required": True, "no_log": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    path, token = os.path.normpath(module.params["path"]), module.params["token"]
    try:
        if module.params["state"] == "present":
            changed = present(path, token, module.check_mode)
            module.exit_json(changed=changed, path=path, free=free(path), boot_id=_counters.boot_id())
        done = absent(path, token, module.check_mode)
        extra = {} if done in ("removed", "missing") else {"msg": done}
        module.exit_json(changed=done == "removed", path=path, **extra)
    except ScratchError as error:
        module.fail_json(msg=str(error), path=path)
    except OSError as error:
        module.fail_json(
            msg=f"cannot use the scratch folder {path} ({error.strerror or error}): choose another with "
            "bulkcopy_scratch_dir.",
            path=path,
        )


if __name__ == "__main__":
    main()
