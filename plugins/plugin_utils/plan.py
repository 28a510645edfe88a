# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what the user wrote to the whole list of runs: checked input, rounds, seeded order, estimate.

Plain Python: knows nothing of Ansible. Every fault of the input is collected and raised together as L(InputError).
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _fidelity

#: Blocks below which the noise floor says nothing, so that an A/A copy would be wasted time.
REPLICA_MIN_BLOCKS = 5
#: The estimate's figures: what a run costs beside its copy, the speed of an unnamed link, the share of a link that
#: payload gets, and what one core compresses (ssh's zlib or gzip at its default level).
OVERHEAD_S = 1.5
DEFAULT_RATE_MBIT = 1000.0
GOODPUT_SHARE = 0.94
COMPRESSOR_BPS = 25_000_000.0
#: What a run on the tree of hard cases takes: a method that fails on some copies each of these again.
FIDELITY_S = 5.0

FULL, UPDATE, EMPTY, FIDELITY = SCENARIOS = ("full", "update", "empty", _fidelity.SHAPE)
#: How files of version 2 of a tree differ from those of version 1, and the share of all that do where nobody says.
CHANGES = ("changed", "grew", "appeared", "vanished")
UPDATE_SHARE = 0.01
VERIFY = ("sha256", "size-mtime", "none")
CACHE = ("as-is", "warm", "cold")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
#: A host name, an IPv4 or an IPv6 address (with its zone), as ssh and netcat take one.
ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*\Z")

LINK_EXAMPLE = """\
bulkcopy_links:
  - name: dc1-dc2
    source: dc1-host
    target: dc2-host
    address: 192.0.2.20"""

PROFILE_KEYS = (
    "description",
    "blocks",
    "max_blocks",
    "precision",
    "budget_minutes",
    "scenarios",
    "update",
    "require",
    "warmups",
    "warmup_datasets",
    "replica",
    "verify",
    "cache",
    "timeout_s",
    "datasets",
    "methods",
)
LINK_KEYS = (
    "name",
    "source",
    "target",
    "address",
    "ssh_port",
    "ssh_user",
    "ssh_identity_file",
    "ssh_known_hosts",
    "ssh_options",
    "target_python",
    "rate_mbit",
    "datasets",
    "profiles",
    "lab",
)
DATASET_KEYS = ("name", "shape", "parts", "scale", "scale_by_rate", "path")
METHOD_KEYS = ("label", "module", "args")


class InputError(ValueError):
    """The input cannot be used; C(faults) has one sentence for each thing that is wrong."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(self.faults))


class Host(NamedTuple):
    """What the plan needs to know of an inventory host."""

    address: str
    machine: str | None = None  # hosts with the same machine are never used at the same moment
    scratch_dir: str = "/var/tmp/linkops-bulkcopy/scratch"
    data_dir: str = "/var/tmp/linkops-bulkcopy/data"


@dataclasses.dataclass(frozen=True)
class Method:
    label: str
    module: str
    args: Mapping[str, Any]

    @property
    def compresses(self) -> bool:
        """Whether a compressor works in it, by the common option names; only the estimate of duration uses this."""
        return bool(
            self.args.get("compress")
            or self.args.get("compress_choice")
            or self.args.get("ssh_compression")
            or self.args.get("compression", "none") != "none"
        )


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Generated (C(shape) or C(parts)) or existing (C(path)). C(scale_by_rate) is ((up to Mbit/s, scale), ...)."""

    name: str
    shape: str | None = None
    parts: Any = None
    scale: float = 1.0
    scale_by_rate: tuple[tuple[float, float], ...] = ()
    path: str | None = None

    def scale_for(self, rate_mbit: float | None) -> float:
        """The scale for a link of that rate: of the entries that reach the rate the one with the lowest limit;
        the plain C(scale) for a faster link and for one whose rate is unknown."""
        if rate_mbit is not None:
            for limit, scale in sorted(self.scale_by_rate):
                if rate_mbit <= limit:
                    return scale
        return self.scale


@dataclasses.dataclass(frozen=True)
class Link:
    name: str
    source: str
    target: str
    address: str
    ssh_port: int | None = None
    ssh_user: str | None = None
    ssh_identity_file: str | None = None
    ssh_known_hosts: str | None = None
    ssh_options: tuple[str, ...] = ()
    target_python: str | None = None
    rate_mbit: float | None = None
    datasets: tuple[str, ...] = ()  # empty: all
    scratch_dir: str = ""  # on the target


@dataclasses.dataclass(frozen=True)
class Tree:
    """One dataset as it lies on one source. C(files) and C(bytes) are null until they are known; a version 2 has those of
    its version 1 until then."""

    key: str
    source: str
    dataset: str
    directory: str
    path: str
    manifest: str
    shape: str | None
    parts: Any
    scale: float
    files: int | None
    bytes: int | None
    update_of: str | None = None  # the key of version 1, where this is version 2

    @property
    def base(self) -> str | None:
        """What version 1 is called on the targets, the same for all that it lies on; null where this is no version 2."""
        return None if self.update_of is None else hashlib.sha256(self.update_of.encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One planned run. C(block) counts from 1, for warm-ups apart from the measured ones; C(position) is the place
    in its block, from 1; C(number) the place in the whole campaign, from 1."""

    run_id: str
    number: int
    link: str
    dataset: str
    scenario: str
    label: str
    block: int
    position: int
    replica: int
    warmup: bool


@dataclasses.dataclass(frozen=True)
class Settings:
    """C(update) has the share of the files for each of C(CHANGES). C(require) has the cases and groups of cases of the
    scenario C(fidelity) that a method must keep to be ranked. C(blocks) are run in any case. More follow, up to
    C(max_blocks), until the interval of every ratio is within C(precision) or C(budget_minutes) of measuring have
    passed."""

    blocks: int = 3
    max_blocks: int = 3
    precision: float = 0.05
    budget_minutes: float | None = None
    scenarios: tuple[str, ...] = (FULL,)
    update: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(CHANGES, UPDATE_SHARE / len(CHANGES))
    )
    require: tuple[str, ...] = ()
    warmups: int = 1
    warmup_datasets: str = "smallest"
    replica: str | bool = "auto"
    verify: str = "sha256"
    cache: str = "warm"
    timeout_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Estimate:
    """At most: all blocks that may be added are counted. C(duration_s) adds up the slowest link of each round;
    C(sure_runs) and C(sure_s) count only what is run in any case; C(unknown) names the trees whose size is not known
    yet."""

    runs: int
    bytes: int
    duration_s: float
    sure_runs: int
    sure_s: float
    unknown: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    settings: Settings
    replica: str | None
    links: tuple[Link, ...]
    methods: tuple[Method, ...]
    datasets: tuple[Dataset, ...]
    trees: tuple[Tree, ...]
    rounds: tuple[tuple[str, ...], ...]
    cells: tuple[Cell, ...]

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready data."""
        data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=dict))
        return data

    def fingerprint(self) -> str:
        """SHA-256 of everything that decides what is measured: a resumed campaign must have the same."""
        data = self.as_dict()
        for tree in data["trees"]:  # the sizes of existing trees are only known later; their digest is compared then
            del tree["files"], tree["bytes"]
        del data["rounds"]
        # It decides what is ranked, and what is measured only by the scenario that it adds.
        del data["settings"]["require"]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


class Size(NamedTuple):
    """A tree that nobody has measured, of which to say how long it would take."""

    files: int
    bytes: int


#: 5 TB in files of 1 MB, and of 1 GB.
DEFAULT_SIZES = (Size(5_000_000, 5_000_000_000_000), Size(5_000, 5_000_000_000_000))


def read_sizes(raw: Any) -> tuple[Size, ...]:
    """What C(bulkcopy_predict) holds: a list of C({files, bytes}); null is L(DEFAULT_SIZES). Raises L(InputError)."""
    if raw is None:
        return DEFAULT_SIZES
    where = "variable bulkcopy_predict"
    reader = _Reader()
    sizes: list[Size] = []
    if isinstance(raw, (str, Mapping)) or not isinstance(raw, Sequence):
        raise InputError([f"{where} must be a list like [{{files: 5000, bytes: 5e12}}], but is {_show(raw)}."])
    for number, item in enumerate(raw, 1):
        place = f"{where}, entry {number}"
        data = reader.mapping(item, place, Size._fields)
        if data is None:
            continue
        for key in Size._fields:
            if data.get(key) is None:
                reader.fault(f"{place} has no {key}: add it.")
        read = [reader.whole(data, key, place, least=1, most=10**18, default=1) or 1 for key in Size._fields]
        sizes.append(Size(*read))
    if reader.faults:
        raise InputError(reader.faults)
    return tuple(sizes)


def read_require(raw: Any, where: str) -> tuple[str, ...]:
    """What methods must keep, as C(bulkcopy_require) names it. Raises L(InputError)."""
    reader = _Reader()
    required = _read_require(raw, where, reader)
    if reader.faults:
        raise InputError(reader.faults)
    return required


def _read_require(raw: Any, where: str, reader: _Reader) -> tuple[str, ...]:
    required = reader.texts({"require": raw}, "require", where)
    known = dict.fromkeys([*_fidelity.GROUPS, *_fidelity.IDS])
    for name in required:
        if name not in known:
            reader.fault(
                f"{where}: there is no {name!r} that a copy could keep or lose; there are {', '.join(_fidelity.GROUPS)}"
                f"{suggest(name, known)}."
            )
    return tuple(dict.fromkeys(required))


def suggest(word: str, known: Iterable[str]) -> str:
    """C( (did you mean X?)) for the closest known word, else the empty string."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def ssh_variant(method: Method) -> dict[str, Any]:
    """What of a method's arguments decides what its ssh connections agree on."""
    options = method.args.get("ssh_options") or ()
    return {
        "ssh_options": list(options),
        "compression": bool(method.args.get("ssh_compression")),
        "cipher": method.args.get("ssh_cipher"),
        "mac": method.args.get("ssh_mac"),
    }


def tree_key(source: str, directory: str) -> str:
    return f"{source}:{directory}"


#: The trees of scenarios that have one of their own: every link has it.
OWN_DATASETS = {
    EMPTY: Dataset(name=EMPTY, shape="empty"),
    FIDELITY: Dataset(name=FIDELITY, shape=_fidelity.SHAPE),
}


class Workload(NamedTuple):
    """What is measured in every block, or in the first one only: a dataset in a scenario."""

    dataset: Dataset
    scenario: str


def make_workloads(datasets: Iterable[Dataset], scenarios: Iterable[str]) -> tuple[Workload, ...]:
    """All of them, in the order of a block. An existing tree has no older version that it could be an update of."""
    workloads: list[Workload] = []
    for scenario in scenarios:
        if scenario in OWN_DATASETS:
            workloads.append(Workload(OWN_DATASETS[scenario], scenario))
        else:
            workloads += [Workload(dataset, scenario) for dataset in datasets if scenario == FULL or not dataset.path]
    return tuple(workloads)


def is_on(link: Link, dataset: Dataset) -> bool:
    """Whether a dataset is measured on a link."""
    return not link.datasets or dataset.name in link.datasets or dataset in OWN_DATASETS.values()


class _Reader:
    """Reads typed values out of what the user wrote and collects a sentence for each that does not fit."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fault(self, sentence: str) -> None:
        if sentence not in self.faults:
            self.faults.append(sentence)

    def mapping(self, value: Any, where: str, known: Sequence[str]) -> Mapping[str, Any] | None:
        if not isinstance(value, Mapping):
            self.fault(f"{where} must be a mapping with the keys {', '.join(known)}, but is {_show(value)}.")
            return None
        for key in value:
            if key not in known:
                self.fault(f"{where} has the unknown key {key!r}; known are {', '.join(known)}{suggest(key, known)}.")
        return value

    def text(self, data: Mapping[str, Any], key: str, where: str, required: bool = False) -> str | None:
        value = data.get(key)
        if value is None:
            if required:
                self.fault(f"{where} has no {key}: add it.")
            return None
        if not isinstance(value, str) or not value:
            self.fault(f"{where}: {key} must be a text, but is {_show(value)}: put it in quotes.")
            return None
        return str(value)

    def name(self, data: Mapping[str, Any], where: str) -> str | None:
        value = self.text(data, "name", where, required=True)
        if value is not None and not NAME.match(value):
            self.fault(
                f"{where}: the name {value!r} must begin with a letter or digit and hold only letters, digits, "
                "dots, hyphens and underscores."
            )
            return None
        return value

    def number(
        self, data: Mapping[str, Any], key: str, where: str, *, above: float, default: float | None = None
    ) -> float | None:
        value = data.get(key)
        if value is None:
            return default
        number = to_number(value)
        if number is None or not number > above:
            self.fault(f"{where}: {key} must be a number above {above:g}, but is {_show(value)}.")
            return default
        return number

    def whole(
        self, data: Mapping[str, Any], key: str, where: str, *, least: int, most: int, default: int | None = None
    ) -> int | None:
        value = data.get(key)
        if value is None:
            return default
        number = to_number(value)
        if number is None or number != int(number) or not least <= number <= most:
            self.fault(f"{where}: {key} must be a whole number from {least} to {most}, but is {_show(value)}.")
            return default
        return int(number)

    def choice(self, data: Mapping[str, Any], key: str, where: str, choices: Sequence[str], default: str) -> str:
        value = data.get(key, default)
        if value not in choices:
            self.fault(
                f"{where}: {key} must be one of {', '.join(choices)}, but is {_show(value)}{suggest(value, choices)}."
            )
            return default
        return str(value)

    def folder(self, path: str, what: str) -> None:
        if not path.startswith("/") or not path.strip("/."):
            self.fault(f"{what} must be an absolute path below /, but is {path!r}.")

    def texts(self, data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = data.get(key) or ()
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
            self.fault(f"{where}: {key} must be a list of texts, but is {_show(value)}.")
            return ()
        return tuple(str(v) for v in value)


def to_number(value: Any) -> float | None:
    """A finite number out of a number or of the text that -e makes of one; null for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_settings(profile: Mapping[str, Any], places: Mapping[str, str], reader: _Reader) -> Settings:
    """C(places) says for each key where it was written."""
    replica: str | bool = profile.get("replica", "auto")
    if isinstance(replica, str):
        replica = {"true": True, "yes": True, "false": False, "no": False}.get(replica.lower(), replica)
    if not isinstance(replica, bool) and replica != "auto":
        reader.fault(f"{places['replica']}: replica must be auto, true or false, but is {_show(replica)}.")
        replica = "auto"
    blocks = reader.whole(profile, "blocks", places["blocks"], least=1, most=1000, default=3) or 3
    scenarios = reader.texts(profile, "scenarios", places["scenarios"]) or (FULL,)
    require = _read_require(profile.get("require"), places["require"], reader)
    for scenario in scenarios:
        if scenario not in SCENARIOS:
            reader.fault(
                f"{places['scenarios']}: there is no scenario {scenario!r}; there are {', '.join(SCENARIOS)}"
                f"{suggest(scenario, SCENARIOS)}."
            )
    precision = reader.number(profile, "precision", places["precision"], above=0, default=0.05) or 0.05
    if precision >= 1:
        reader.fault(f"{places['precision']}: precision must be a share below 1 (0.05 is 5 %), but is {precision:g}.")
    warmups = reader.whole(profile, "warmups", places["warmups"], least=0, most=1000, default=1)
    return Settings(
        blocks=blocks,
        max_blocks=reader.whole(profile, "max_blocks", places["max_blocks"], least=blocks, most=1000) or blocks,
        precision=precision,
        budget_minutes=reader.number(profile, "budget_minutes", places["budget_minutes"], above=0),
        scenarios=tuple(
            scenario for scenario in SCENARIOS if scenario in scenarios or (scenario == FIDELITY and require)
        ),
        update=_read_update(profile.get("update", UPDATE_SHARE), places["update"], reader),
        require=require,
        warmups=warmups or 0,
        warmup_datasets=reader.choice(
            profile, "warmup_datasets", places["warmup_datasets"], ("smallest", "all"), "smallest"
        ),
        replica=replica,
        verify=reader.choice(profile, "verify", places["verify"], VERIFY, "sha256"),
        cache=reader.choice(profile, "cache", places["cache"], CACHE, "warm"),
        timeout_s=reader.number(profile, "timeout_s", places["timeout_s"], above=0),
    )


def _read_update(value: Any, where: str, reader: _Reader) -> Mapping[str, float]:
    """The share of the files for each of C(CHANGES); one number is shared out evenly."""
    if isinstance(value, Mapping):
        data = reader.mapping(value, f"{where}, update", CHANGES) or {}
        shares = {kind: to_number(data.get(kind, 0)) for kind in CHANGES}
    else:
        share = to_number(value)
        shares = dict.fromkeys(CHANGES, None if share is None else share / len(CHANGES))
    known = {kind: share for kind, share in shares.items() if share is not None and share >= 0}
    if len(known) == len(CHANGES) and 0 < sum(known.values()) <= 1:
        return known
    reader.fault(
        f"{where}: update must be the share of files that differ, above 0 and at most 1 (0.01 is 1 %), or a mapping of "
        f"{', '.join(CHANGES)} to their shares, but is {_show(value)}."
    )
    return Settings().update


def read_links(
    raw: Any,
    hosts: Mapping[str, Host],
    ssh_users: Mapping[str, str],
    reader: _Reader,
    profile: str,
    profiles: Sequence[str],
) -> list[Link]:
    """The links that C(profile) measures: those without C(profiles), and those that have it there. C(profiles) are the
    names that there are; a file of the user's own is named by its path, which nothing is compared with."""
    if not raw:
        reader.fault(f"the inventory has no bulkcopy_links: write which links to measure, for example\n{LINK_EXAMPLE}")
        return []
    if isinstance(raw, (str, Mapping)) or not isinstance(raw, Sequence):
        reader.fault(f"bulkcopy_links must be a list, but is {_show(raw)}: for example\n{LINK_EXAMPLE}")
        return []
    links: list[Link] = []
    names: set[str] = set()
    left_out = False
    for number, item in enumerate(raw, 1):
        where = f"bulkcopy_links entry {number}"
        data = reader.mapping(item, where, LINK_KEYS)
        if data is None:
            continue
        name = reader.name(data, where)
        if name is not None:
            where = f"link {name}"
            if name in names:
                reader.fault(f"two links are named {name}: rename one in bulkcopy_links.")
            names.add(name)
        ends: dict[str, str | None] = {}
        for end in ("source", "target"):
            host = ends[end] = reader.text(data, end, where, required=True)
            if host is not None and host not in hosts:
                reader.fault(
                    f"{where}: its {end} {host} is not a host of the inventory: add it there or correct "
                    f"bulkcopy_links{suggest(host, hosts)}."
                )
                ends[end] = None
        if ends["source"] is not None and ends["source"] == ends["target"]:
            reader.fault(f"{where}: its source and its target are both {ends['source']}: name two different hosts.")
        address = reader.text(data, "address", where)
        if address is not None and not ADDRESS.match(address):
            reader.fault(f"{where}: address must be a host name or an IP address, but is {_show(address)}.")
        for end, variable in (("source", "data_dir"), ("target", "scratch_dir")):
            host = ends[end]
            if host is not None:
                reader.folder(getattr(hosts[host], variable), f"host {host}: bulkcopy_{variable}")
        rate = reader.number(data, "rate_mbit", where, above=0)
        lab = data.get("lab")
        if rate is None and isinstance(lab, Mapping):
            rate = reader.number(lab, "rate_mbit", f"{where}, lab", above=0)
        options = reader.texts(data, "ssh_options", where)
        for option in options:
            if not re.match(r"[A-Za-z0-9]+=", option):
                reader.fault(f"{where}: the ssh option {option!r} must look like Key=value.")
        link = Link(
            name=name or "",
            source=ends["source"] or "",
            target=ends["target"] or "",
            address=address or (hosts[ends["target"]].address if ends["target"] else ""),
            ssh_port=reader.whole(data, "ssh_port", where, least=1, most=65535),
            ssh_user=reader.text(data, "ssh_user", where) or ssh_users.get(ends["target"] or ""),
            ssh_identity_file=reader.text(data, "ssh_identity_file", where),
            ssh_known_hosts=reader.text(data, "ssh_known_hosts", where),
            ssh_options=options,
            target_python=reader.text(data, "target_python", where),
            rate_mbit=rate,
            datasets=reader.texts(data, "datasets", where),
            scratch_dir=hosts[ends["target"]].scratch_dir if ends["target"] else "",
        )
        only = reader.texts(data, "profiles", where)
        for word in only:
            if not is_profile_path(word) and word not in (profile, *profiles):
                reader.fault(
                    f"{where}: there is no profile {word}, which its profiles name; there are {', '.join(profiles)}"
                    f"{suggest(word, profiles)}. A file of your own is named by its path."
                )
        if only and profile not in only:
            left_out = True
        elif name and link.source and link.target:
            links.append(link)
    if left_out and not links:
        reader.fault(f"profile {profile} measures none of bulkcopy_links: add it to the profiles of one of them.")
    return links


def is_profile_path(word: str) -> bool:
    """Whether a profile is named by the path of a file."""
    return "/" in word or word.endswith((".yml", ".yaml"))


def read_datasets(raw: Any, where: str, reader: _Reader) -> list[Dataset]:
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
        reader.fault(f"{where}: datasets must be a list with at least one entry, but is {_show(raw)}.")
        return []
    datasets: list[Dataset] = []
    names: set[str] = set()
    for number, item in enumerate(raw, 1):
        place = f"{where}, dataset {number}"
        data = reader.mapping(item, place, DATASET_KEYS)
        if data is None:
            continue
        name = reader.name(data, place)
        if name is not None:
            place = f"{where}, dataset {name}"
            if name in names:
                reader.fault(f"{where}: two datasets are named {name}: rename one.")
            names.add(name)
        shape, parts, path = reader.text(data, "shape", place), data.get("parts"), reader.text(data, "path", place)
        if sum(value is not None for value in (shape, parts, path)) > 1 or (
            path is not None and (data.get("scale") is not None or data.get("scale_by_rate"))
        ):
            reader.fault(f"{place}: give a shape, or parts, or the path of an existing tree, and scale without path.")
        if shape is None and parts is None and path is None:
            if name in _dataset.SHAPES:
                shape = name
            elif name is not None:
                reader.fault(
                    f"{place}: give a shape ({', '.join(_dataset.SHAPES)}), or parts, or the path of an existing tree."
                )
        if shape is not None and shape not in _dataset.SHAPES:
            reader.fault(
                f"{place}: the shape {shape!r} is unknown; known are {', '.join(_dataset.SHAPES)}{suggest(shape, _dataset.SHAPES)}."
            )
        if parts is not None:
            try:
                _parts(parts)
            except _dataset.DatasetError as error:
                reader.fault(f"{place}: {error}.")
        if path is not None and not path.startswith("/"):
            reader.fault(f"{place}: the path {path!r} must be absolute.")
        steps: list[tuple[float, float]] = []
        by_rate = data.get("scale_by_rate") or ()
        if not isinstance(by_rate, Sequence) or isinstance(by_rate, str):
            reader.fault(f"{place}: scale_by_rate must be a list of up_to_mbit and scale, but is {_show(by_rate)}.")
            by_rate = ()
        for step in by_rate:
            entry = reader.mapping(step, f"{place}, scale_by_rate", ("up_to_mbit", "scale"))
            if entry is not None:
                limit = reader.number(entry, "up_to_mbit", f"{place}, scale_by_rate", above=0)
                scale = reader.number(entry, "scale", f"{place}, scale_by_rate", above=0)
                if limit is None or scale is None:
                    reader.fault(f"{place}: each entry of scale_by_rate needs up_to_mbit and scale.")
                else:
                    steps.append((limit, scale))
        if name is not None:
            datasets.append(
                Dataset(
                    name=name,
                    shape=shape,
                    parts=parts,
                    scale=reader.number(data, "scale", place, above=0, default=1.0) or 1.0,
                    scale_by_rate=tuple(steps),
                    path=path,
                )
            )
    return datasets


def read_methods(raw: Any, where: str, standard: Sequence[Mapping[str, Any]], reader: _Reader) -> list[Method]:
    """An entry is the label of a standard method or a mapping of label, module and args. Modules and args are only
    checked for their kind here."""
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
        reader.fault(f"{where}: methods must be a list with at least one entry, but is {_show(raw)}.")
        return []
    by_label = {str(method["label"]): method for method in standard}
    methods: list[Method] = []
    labels: set[str] = set()
    for number, item in enumerate(raw, 1):
        place = f"{where}, method {number}"
        entry = item
        if isinstance(item, str):
            if item not in by_label:
                reader.fault(
                    f"{place}: there is no standard method labelled {item!r}{suggest(item, by_label)}. Known are "
                    f"{', '.join(by_label)}; any other needs label, module and args."
                )
                continue
            entry = by_label[item]
        data = reader.mapping(entry, place, METHOD_KEYS)
        if data is None:
            continue
        label, module = (
            reader.text(data, "label", place, required=True),
            reader.text(data, "module", place, required=True),
        )
        args = data.get("args") or {}
        if not isinstance(args, Mapping):
            reader.fault(f"{place}: args must be a mapping of module options, but is {_show(args)}.")
            args = {}
        if label is not None:
            if not label.isprintable() or label != label.strip():
                reader.fault(f"{place}: the label {label!r} must be printable, without spaces at its ends.")
            if label in labels:
                reader.fault(f"{where}: two methods are labelled {label!r}: rename one.")
            labels.add(label)
        if label is not None and module is not None:
            methods.append(
                Method(
                    label=label,
                    module=module if "." in module else f"linkops.bulkcopy.{module}",
                    args={str(key): args[key] for key in args},
                )
            )
    return methods


def make_rounds(links: Sequence[Link], machine: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Rounds of links that may run together, since no two of a round share a machine.

    Greedy edge colouring: the links in their order, each into the first round where both its machines are free; at
    most 2d-1 rounds where a machine has d links. C(machine) maps a host to the machine it is; a host that is not in
    it is its own.
    """
    rounds: list[tuple[list[str], set[str]]] = []
    for link in links:
        ends = {machine.get(link.source, link.source), machine.get(link.target, link.target)}
        for names, busy in rounds:
            if not ends & busy:
                names.append(link.name)
                busy |= ends
                break
        else:
            rounds.append(([link.name], ends))
    return tuple(tuple(names) for names, _busy in rounds)


#: What follows a tree's name in that of its version 2; no dataset can be called so.
_UPDATED = "+update"


def _directory(dataset: Dataset, link: Link) -> tuple[str, float]:
    """What a dataset is called on the source of a link, and its scale there."""
    scale = 1.0 if dataset.path is not None else dataset.scale_for(link.rate_mbit)
    return dataset.name if scale == 1 else f"{dataset.name}-x{scale:g}", scale


def _size(dataset: Dataset, scale: float) -> tuple[int, int] | None:
    """(files, bytes) of a generated dataset; null for one of which only its source can tell."""
    if dataset.path is not None or dataset.shape == _fidelity.SHAPE:
        return None
    parts = _dataset.SHAPES[dataset.shape] if dataset.shape is not None else _parts(dataset.parts)
    planned = _dataset.make_plan(parts, scale)
    return len(planned.files), planned.bytes


def _parts(parts: Any) -> tuple[_dataset.Part, ...]:
    """The parts as the dataset module takes them. Raises DatasetError with a sentence."""
    known = _dataset.Part._fields
    for part in parts if isinstance(parts, (list, tuple)) else [parts]:
        if not isinstance(part, Mapping) or not {"name", "files", "file_bytes"} <= set(part) <= set(known):
            raise _dataset.DatasetError(
                f"parts must be a list of mappings with name, files and file_bytes, and of {', '.join(known[3:])} what "
                f"is wanted, but there is {_show(part)}"
            )
    made = tuple(_dataset.Part(**part) for part in parts)
    try:
        _dataset.check_parts(made)
    except TypeError:
        raise _dataset.DatasetError("every number of a part must be one, without quotes") from None
    return made


#: By link name, dataset name and scenario.
Trees = dict[tuple[str, str, str], Tree]


def make_trees(
    links: Sequence[Link],
    workloads: Sequence[Workload],
    hosts: Mapping[str, Host],
    update: Mapping[str, float],
) -> tuple[Trees, tuple[Tree, ...]]:
    """The trees that must lie on the sources: where each is used, and each once, a version 1 before its version 2.
    C(update) as in C(Settings). Raises DatasetError."""
    used: Trees = {}
    trees: dict[str, Tree] = {}
    for link in links:
        data_dir = hosts[link.source].data_dir.rstrip("/")
        for dataset, scenario in workloads:
            if not is_on(link, dataset):
                continue
            directory, scale = _directory(dataset, link)
            key = tree_key(link.source, directory)
            size = _size(dataset, scale)
            first = Tree(
                key=key,
                source=link.source,
                dataset=dataset.name,
                directory=directory,
                path=dataset.path or f"{data_dir}/{directory}",
                manifest=f"{data_dir}/{directory}.manifest",
                shape=dataset.shape,
                parts=dataset.parts,
                scale=scale,
                files=size[0] if size else None,
                bytes=size[1] if size else None,
            )
            tree = trees.setdefault(key, first)
            if scenario == UPDATE:
                try:
                    _dataset.change_counts(tree.files or 0, update)
                except _dataset.DatasetError as error:
                    raise _dataset.DatasetError(f"dataset {dataset.name} on link {link.name}: {error}") from None
                directory += _UPDATED
                tree = dataclasses.replace(
                    tree,
                    key=tree_key(link.source, directory),
                    directory=directory,
                    path=f"{data_dir}/{directory}",
                    manifest=f"{data_dir}/{directory}.manifest",
                    shape=None,
                    parts=None,
                    update_of=key,
                )
                tree = trees.setdefault(tree.key, tree)
            used[link.name, dataset.name, scenario] = tree
    return used, tuple(trees.values())


def make_cells(
    seed: int,
    settings: Settings,
    replica: str | None,
    links: Sequence[Link],
    methods: Sequence[Method],
    trees: Trees,
    workloads: Sequence[Workload],
) -> tuple[Cell, ...]:
    """Every run of the campaign, link by link: the warm-ups, then block after block, those included that are run only
    where they are needed; in a block each dataset, and in it each method once (the A/A copy of C(replica) too), in an
    order that depends on the seed and on nothing else that may change. A block is complete in all datasets before the
    next begins. What a method keeps is the same each time, so that C(FIDELITY) is in the first block only."""
    cells: list[Cell] = []
    for link in links:
        measured = [(item.name, scenario) for item, scenario in workloads if (link.name, item.name, scenario) in trees]
        whole = {name: trees[link.name, name, FULL].bytes for name, scenario in measured if scenario == FULL}
        known = [name for name, size in whole.items() if size is not None]
        smallest = min(known or whole, key=lambda name: whole[name] or 0, default=None)
        warm = [(name, FULL) for name in whole if settings.warmup_datasets == "all" or name == smallest]
        blocks = [(True, block, warm) for block in range(1, settings.warmups + 1)]
        blocks += [(False, block, measured) for block in range(1, settings.max_blocks + 1)]
        for warmup, block, parts in blocks:
            for name, scenario in parts:
                if scenario == FIDELITY and block > 1:
                    continue
                entries = [(method.label, 0) for method in methods]
                if replica is not None and not warmup and scenario != FIDELITY:
                    entries.append((replica, 1))
                place = [seed, link.name, name, scenario, "warmup" if warmup else "measured", block]
                # A text seed makes the same order on every Python 3 (it goes through SHA-512).
                random.Random(json.dumps(place)).shuffle(entries)
                for position, (label, copy) in enumerate(entries, 1):
                    run_id = hashlib.sha256(json.dumps([*place, label, copy]).encode()).hexdigest()[:16]
                    cells.append(
                        Cell(
                            run_id=run_id,
                            number=len(cells) + 1,
                            link=link.name,
                            dataset=name,
                            scenario=scenario,
                            label=label,
                            block=block,
                            position=position,
                            replica=copy,
                            warmup=warmup,
                        )
                    )
    return tuple(cells)


def choose_replica(settings: Settings, methods: Sequence[Method], seed: int) -> str | None:
    """The method that runs twice a block, or null: C(auto) spends that run only where it yields a noise floor."""
    if settings.replica is False or (settings.replica == "auto" and settings.max_blocks < REPLICA_MIN_BLOCKS):
        return None
    return random.Random(json.dumps([seed, "replica"])).choice([method.label for method in methods])


def make_plan(
    *,
    profile: Mapping[str, Any],
    profile_name: str,
    overrides: Mapping[str, Any],
    links: Any,
    hosts: Mapping[str, Host],
    standard_methods: Sequence[Mapping[str, Any]],
    seed: int,
    ssh_users: Mapping[str, str] | None = None,
    more_faults: Callable[[Sequence[Method]], Iterable[str]] | None = None,
    profiles: Sequence[str] = (),
) -> Plan:
    """The whole plan, or L(InputError) with every fault at once.

    C(overrides) replaces keys of C(profile) by variables (C(bulkcopy_blocks) and so on). C(links) is what
    C(bulkcopy_links) holds, C(hosts) the inventory, C(ssh_users) the copy user by target. C(more_faults), called with
    the methods, adds faults that only the caller can see. C(profiles) are the names of profiles that links may give.
    """
    reader = _Reader()
    where = f"profile {profile_name}"
    reader.mapping(profile, where, PROFILE_KEYS)
    profile = {**profile, **overrides}
    if "blocks" in overrides and "max_blocks" not in overrides:  # who says how many means so many
        profile.pop("max_blocks", None)
    places = {key: f"variable bulkcopy_{key}" if key in overrides else where for key in PROFILE_KEYS}
    settings = read_settings(profile, places, reader)
    if "budget_minutes" in overrides and settings.max_blocks == settings.blocks:
        reader.fault(
            f"{places['budget_minutes']} only ends blocks that are added: set bulkcopy_max_blocks above {settings.blocks}."
        )
    read = read_links(links, hosts, ssh_users or {}, reader, profile_name, profiles)
    datasets = []
    if profile.get("datasets") is not None or not set(settings.scenarios) <= set(OWN_DATASETS):
        datasets = read_datasets(profile.get("datasets"), places["datasets"], reader)
    methods = read_methods(profile.get("methods"), places["methods"], standard_methods, reader)
    names = [dataset.name for dataset in datasets]
    for name in OWN_DATASETS:
        if name in names:
            reader.fault(f"{places['datasets']}: the name {name} is that of a scenario: add it to scenarios instead.")
    if settings.scenarios == (UPDATE,) and datasets and all(dataset.path for dataset in datasets):
        reader.fault(
            f"{places['datasets']}: an existing tree has no older version, so that the scenario {UPDATE} needs a generated "
            "dataset: add one."
        )
    workloads = make_workloads(datasets, settings.scenarios)
    for link in read:
        for name in link.datasets:
            if names and name not in names:
                reader.fault(
                    f"link {link.name}: the dataset {name} is not in {places['datasets']}; it has {', '.join(names)}"
                    f"{suggest(name, names)}."
                )
    if more_faults is not None:
        for sentence in more_faults(methods):
            reader.fault(sentence)
    if reader.faults:
        raise InputError(reader.faults)
    try:
        used, trees = make_trees(read, workloads, hosts, settings.update)
    except _dataset.DatasetError as error:
        raise InputError([f"{places['datasets']}: {error}."]) from None
    replica = choose_replica(settings, methods, seed)
    machine = {name: host.machine for name, host in hosts.items() if host.machine is not None}
    return Plan(
        seed=seed,
        settings=settings,
        replica=replica,
        links=tuple(read),
        methods=tuple(methods),
        datasets=tuple(datasets),
        trees=trees,
        rounds=make_rounds(read, machine),
        cells=make_cells(seed, settings, replica, read, methods, used, workloads),
    )


def run_estimate_s(size: int, rate_mbit: float | None, compresses: bool) -> float:
    """Seconds for one run: L(OVERHEAD_S) and the payload at the link's rate less headers, or at one core's
    compressing speed where that is lower."""
    speed = (rate_mbit or DEFAULT_RATE_MBIT) * 1e6 / 8 * GOODPUT_SHARE
    return OVERHEAD_S + size / (min(speed, COMPRESSOR_BPS) if compresses else speed)


def estimate(plan: Plan, sizes: Mapping[str, int] | None = None, done: Iterable[str] = ()) -> Estimate:
    """What the campaign will copy and how long it will take. C(sizes): bytes by tree key, where they are known better
    than from the plan; C(done): run_ids that need not run again."""
    used, trees = tree_index(plan)
    links = {link.name: link for link in plan.links}
    methods = {method.label: method for method in plan.methods}
    known = {tree.key: (sizes or {}).get(tree.key, tree.bytes) for tree in trees}
    finished = set(done)
    seconds, sure_seconds = dict.fromkeys(links, 0.0), dict.fromkeys(links, 0.0)
    total = runs = sure_runs = 0
    for cell in plan.cells:
        if cell.run_id in finished:
            continue
        size = known[used[cell.link, cell.dataset, cell.scenario].key] or 0
        runs += 1
        total += size
        spent_s = run_estimate_s(size, links[cell.link].rate_mbit, methods[cell.label].compresses)
        if cell.scenario == FIDELITY:
            spent_s += FIDELITY_S
        seconds[cell.link] += spent_s
        if cell.warmup or cell.block <= plan.settings.blocks:
            sure_runs += 1
            sure_seconds[cell.link] += spent_s
    duration_s, sure_s = (
        sum(max(each[name] for name in names) for names in plan.rounds) for each in (seconds, sure_seconds)
    )
    if plan.settings.budget_minutes is not None:
        duration_s = max(sure_s, min(duration_s, plan.settings.budget_minutes * 60))
    return Estimate(
        runs=runs,
        bytes=total,
        duration_s=duration_s,
        sure_runs=sure_runs,
        sure_s=sure_s,
        # A tree of hard cases has a few MB.
        unknown=tuple(tree.key for tree in trees if known[tree.key] is None and tree.shape != _fidelity.SHAPE),
    )


def tree_index(plan: Plan) -> tuple[Trees, tuple[Tree, ...]]:
    """The plan's trees by link name, dataset name and scenario, and all of them."""
    trees = {tree.key: tree for tree in plan.trees}
    used: Trees = {}
    for link in plan.links:
        for dataset, scenario in make_workloads(plan.datasets, plan.settings.scenarios):
            if is_on(link, dataset):
                directory = _directory(dataset, link)[0] + (_UPDATED if scenario == UPDATE else "")
                used[link.name, dataset.name, scenario] = trees[tree_key(link.source, directory)]
    return used, plan.trees


def refuse_above(estimated: Estimate, max_bytes: float | None, max_minutes: float | None) -> list[str]:
    """The sentences that refuse a campaign larger than the user allows; an empty list allows it. Null is no limit."""
    faults = []
    if max_bytes is not None and estimated.bytes > max_bytes:
        faults.append(
            f"the plan would copy {show_bytes(estimated.bytes)} in {estimated.runs} runs, more than bulkcopy_max_bytes "
            f"({show_bytes(max_bytes)}): raise it, or plan fewer blocks, methods or smaller datasets."
        )
    if max_minutes is not None and estimated.duration_s > max_minutes * 60:
        faults.append(
            f"the plan would take about {show_duration(estimated.duration_s)} for {estimated.runs} runs, more than "
            f"bulkcopy_max_minutes ({max_minutes:g}): raise it, set bulkcopy_budget_minutes, or plan fewer blocks, "
            "methods or smaller datasets."
        )
    return faults


def show_bytes(size: float) -> str:
    """Bytes in powers of ten with three digits, as in C(1.5 GB)."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.9995 * factor:  # three digits would show it as 1000 of the unit below
            return f"{float(f'{size / factor:.3g}'):g} {unit}"
    return f"{size:.0f} B"


def show_duration(seconds: float) -> str:
    """Seconds as C(42 s), C(5 min 10 s) or C(2 h 5 min)."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """The plan that L(Plan.as_dict) wrote."""

    def tupled(value: Any) -> tuple[Any, ...]:
        return tuple(value or ())

    return Plan(
        seed=int(data["seed"]),
        settings=Settings(
            **{
                **data["settings"],
                "scenarios": tupled(data["settings"]["scenarios"]),
                "require": tupled(data["settings"].get("require")),
            }
        ),
        replica=data["replica"],
        links=tuple(
            Link(
                **{
                    **link,
                    "ssh_options": tupled(link["ssh_options"]),
                    "datasets": tupled(link["datasets"]),
                }
            )
            for link in data["links"]
        ),
        methods=tuple(Method(**method) for method in data["methods"]),
        datasets=tuple(
            Dataset(**{**dataset, "scale_by_rate": tuple((a, b) for a, b in dataset["scale_by_rate"])})
            for dataset in data["datasets"]
        ),
        trees=tuple(Tree(**tree) for tree in data["trees"]),
        rounds=tuple(tuple(names) for names in data["rounds"]),
        cells=tuple(Cell(**cell) for cell in data["cells"]),
    )
