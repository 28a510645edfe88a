# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks a method's module and options against that module's own documentation, before anything is copied."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.loader import fragment_loader, module_loader
from ansible.utils.plugin_docs import get_docstring
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import CopyMethod, mistake_in
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Method, suggest

#: Options that the campaign sets itself, for all methods alike. C(ssh_options) may be given by both: it can be what
#: tells two methods apart (a cipher), and then comes before the link's own.
CAMPAIGN_OPTIONS = frozenset(
    (
        "src",
        "dest",
        "address",
        "ssh_port",
        "ssh_user",
        "ssh_identity_file",
        "ssh_known_hosts",
        "target_python",
        "source_name",
        "target_name",
        "scratch",
        "scratch_token",
        "label",
        "timeout_s",
        "verify",
        "cache",
        "manifest",
        "link_Bps",
        "link_stream_Bps",
        "update",
        "base",
    )
)
#: A module that has all these options is a copy method: a campaign gives them to each.
METHOD_SIGNATURE = CAMPAIGN_OPTIONS | {"ssh_options"}
_SPEC_KEYS = ("type", "elements", "choices", "aliases")

Options = Mapping[str, Mapping[str, Any]]


def documented_options(module: str) -> Options | None:
    """The options of a module (FQCN) from its documentation, fragments included; null where there is no such module."""
    found = module_loader.find_plugin_with_context(module, ignore_deprecated=True)
    if not found.resolved or not found.plugin_resolved_path:
        return None
    collection = ".".join(module.split(".")[:2])
    doc, _examples, _returned, _metadata = get_docstring(
        found.plugin_resolved_path, fragment_loader, collection_name=collection
    )
    return (doc or {}).get("options") or {}


def known_methods() -> list[str]:
    """The short names of this collection's copy modules."""
    names = []
    for path in sorted((Path(__file__).resolve().parents[1] / "modules").glob("*.py")):
        options = documented_options(f"linkops.bulkcopy.{path.stem}")
        if options is not None and set(options) >= METHOD_SIGNATURE:
            names.append(path.stem)
    return names


def check_methods(
    methods: Sequence[Method], options_of: Callable[[str], Options | None] = documented_options
) -> list[str]:
    """One sentence for each method whose module is unknown or whose arguments that module would not take."""
    faults: list[str] = []
    for method in methods:
        where = f"method {method.label!r}"
        short = method.module.removeprefix("linkops.bulkcopy.")
        options = options_of(method.module)
        if options is None or not set(options) >= METHOD_SIGNATURE:
            known = known_methods()
            lacks = ", ".join(sorted(METHOD_SIGNATURE - set(options or ())))
            reason = "is not installed" if options is None else f"is not a copy method (it lacks {lacks})"
            faults.append(
                f"{where}: the module {short} {reason}; known methods are {', '.join(known)}{suggest(short, known)}."
            )
            continue
        wrong = check_arguments(short, method.args, options)
        made = None if wrong else make_method(method, options)
        mistake = made and mistake_in(made)
        faults += [f"{where}: {sentence}" for sentence in wrong] + ([f"{where}: {mistake}."] if mistake else [])
    return faults


def make_method(method: Method, options: Options) -> CopyMethod | None:
    """The method as its module makes it of its arguments; null where the module has no C(CopyMethod) to import."""
    try:
        module = importlib.import_module(
            "ansible_collections.{}.{}.plugins.modules.{}".format(*method.module.split("."))
        )
    except (ImportError, IndexError):
        return None
    classes = [
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, CopyMethod) and found.__module__ == module.__name__
    ]
    if not classes:
        return None
    aliases = {alias: name for name, option in options.items() for alias in option.get("aliases") or ()}
    given = {aliases.get(name, name): value for name, value in method.args.items()}
    spec = {
        name: _spec(options[name]) | {"default": options[name].get("default")}
        for name in options
        if name not in CAMPAIGN_OPTIONS
    }
    return classes[0](ArgumentSpecValidator(spec).validate(given).validated_parameters)


def programs_of(methods: Sequence[Method]) -> dict[str, str | None]:
    """The programs that methods look for at either end, and how each is asked for its version, null for one that does not
    tell."""
    found: dict[str, str | None] = {}
    for method in methods:
        options = documented_options(method.module)
        made = None if options is None else make_method(method, options)
        if made is not None:
            for name in (*made.source_programs, *made.target_programs):
                found[name] = found.get(name) or made.version_option(name)
    return found


def check_arguments(module: str, args: Mapping[str, Any], options: Options) -> list[str]:
    """What is wrong with C(args) as options of C(module): one sentence each."""
    faults: list[str] = []
    free = sorted(set(options) - CAMPAIGN_OPTIONS)
    aliases = {alias: name for name, option in options.items() for alias in option.get("aliases") or ()}
    checked: dict[str, Any] = {}
    for name, value in args.items():
        real = aliases.get(name, name)
        if real in CAMPAIGN_OPTIONS:
            faults.append(f"the option {name} is set by the campaign for all methods alike: remove it from args.")
        elif real not in options:
            faults.append(f"{module} has no option {name}; it has {', '.join(free)}{suggest(name, free)}.")
        elif options[real].get("type", "str") == "str" and not isinstance(value, str):
            faults.append(f"the option {name} of {module} must be a text, but is {value!r}: put it in quotes.")
        else:
            checked[real] = value
    spec = {name: _spec(options[name]) for name in checked}
    for name in free:
        if options[name].get("required") and name not in args:
            faults.append(f"{module} needs the option {name}.")
    validated = ArgumentSpecValidator(spec).validate(checked)
    faults += [f"{module} refuses its options: {message.rstrip('.')}." for message in validated.error_messages]
    return faults


def _spec(option: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: option[key] for key in _SPEC_KEYS if option.get(key) is not None}
    if isinstance(spec.get("choices"), Mapping):  # choices may be documented one by one
        spec["choices"] = list(spec["choices"])
    if option.get("suboptions"):
        spec["options"] = {name: _spec(sub) for name, sub in option["suboptions"].items()}
    return spec
