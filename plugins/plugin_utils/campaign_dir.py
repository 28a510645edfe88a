# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a campaign's results lie on the controller. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[2]


def results_dir(given: str | None) -> Path:
    """Where results go: C(results) in the repository when the collection is used from there (only a repository has a
    C(galaxy.yml)), else in the current directory."""
    if given:
        return Path(given).expanduser().resolve()
    return (COLLECTION if (COLLECTION / "galaxy.yml").is_file() else Path.cwd()) / "results"
