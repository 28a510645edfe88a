# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _fidelity
from ansible_collections.linkops.bulkcopy.plugins.modules import dataset

ROOT = Path(__file__).resolve().parents[4]
PARTS = [{"name": "p", "files": 3, "file_bytes": 1000}]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(**args: Any) -> dict[str, Any]:
        with patch_module_args(args), pytest.raises(SystemExit):
            dataset.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return call


def test_returns(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    result = run(path=f"{path}/", parts=PARTS)
    assert result["changed"] is True
    assert result["dataset"].pop("elapsed_s") >= 0
    assert result["dataset"] == {
        "name": "mine",
        "path": str(path),
        "manifest": f"{path}.dataset.json",
        "files": 3,
        "directories": 1,
        "bytes": 3000,
        "created": 3,
        "replaced": 0,
        "removed": 0,
    }
    assert Path(result["dataset"]["manifest"]).is_file()
    assert set(yaml.safe_load(dataset.RETURN)["dataset"]["contains"]) == {*result["dataset"], "elapsed_s"}
    assert run(path=str(path), parts=PARTS)["changed"] is False
    assert run(path=str(path), state="absent")["changed"] is True
    assert run(path=str(path), state="absent")["changed"] is False


def test_a_standard_shape_by_name_and_scale(run: Any, tmp_path: Path) -> None:
    result = run(path=str(tmp_path / "x"), shape="small", scale=0.002, name="fours")
    assert (result["dataset"]["name"], result["dataset"]["files"], result["dataset"]["bytes"]) == ("fours", 4, 400000)


def test_check_mode(run: Any, tmp_path: Path) -> None:
    result = run(path=str(tmp_path / "x"), shape="large", scale=0.01, _ansible_check_mode=True)
    assert (result["changed"], result["dataset"]["created"], result["dataset"]["bytes"]) == (True, 2, 20000000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "missing: shape, parts"),
        ({"shape": "small", "parts": PARTS}, "mutually exclusive"),
        ({"shape": "huge"}, "small, large, tree"),
        ({"shape": "small", "scale": "1,5"}, "scale"),
        ({"shape": "small", "scale": "nan"}, "scale nan"),
        ({"shape": "small", "scale": 0}, "scale 0.0"),
        ({"parts": []}, "at least one part"),
        ({"parts": [*PARTS, *PARTS]}, "two parts are called 'p'"),
        ({"parts": [{**PARTS[0], "files": 0}]}, "files 0"),
        ({"parts": [{**PARTS[0], "colour": "red"}]}, "colour"),
        ({"shape": "small", "path": "relative"}, "not absolute"),
        ({"shape": "small", "name": "a/b"}, "dataset name 'a/b'"),
    ],
)
def test_bad_input_is_one_sentence(run: Any, tmp_path: Path, args: dict[str, Any], says: str) -> None:
    result = run(**{"path": str(tmp_path / "x"), **args})
    assert result["failed"] is True
    assert says in result["msg"]
    assert "\n" not in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_choices_and_defaults_agree_with_the_logic_the_docs_and_the_role() -> None:
    spec = dataset.argument_spec()
    documented = yaml.safe_load(dataset.DOCUMENTATION)["options"]
    assert set(spec["shape"]["choices"]) == {*_dataset.SHAPES, _fidelity.SHAPE}
    assert set(spec["check"]["choices"]) == set(_dataset.CHECKS)
    part = spec["parts"]["options"]
    assert {name: option["default"] for name, option in part.items() if "default" in option} == (
        _dataset.Part._field_defaults
    )

    def facts(options: dict[str, Any]) -> dict[str, Any]:
        keys = ("type", "default", "choices", "required")
        return {name: {key: option[key] for key in keys if key in option} for name, option in options.items()}

    assert facts(documented) == facts(spec)
    assert facts(documented["parts"]["suboptions"]) == facts(part)
    role = ROOT / "roles" / "dataset"
    inputs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert facts(inputs["dataset_list"]["options"]["parts"]["options"]) == facts(part)
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    assert defaults == {name: option["default"] for name, option in inputs.items() if "default" in option}
