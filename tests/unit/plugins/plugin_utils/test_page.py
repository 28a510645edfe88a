# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import html.parser
import math
import re
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import charts, page
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

from . import samples

VOID = {"meta"}


class Reader(html.parser.HTMLParser):
    """Elements that are all closed in their order, with their attributes, and the text outside of the style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(*links: summaries.LinkResult, **changes: object) -> Reader:
    return Reader(page.html(samples.summary(*links, **changes)))


def full() -> summaries.LinkResult:
    """A link with all that can be shown."""
    first = samples.result(
        samples.method("tar|nc", encrypted=False, limiter="link", limiter_reason="99 % of it", flags=("not-flushed",)),
        samples.method("scp", 1.25, outliers=(3, 7), durable_s=10.5, flags=("not-flushed", "outliers")),
        samples.method("rsync -a", 1.5, verdict="unresolved", ratio_ci=(0.9, 2.5), flags=("not-flushed",)),
        samples.method("scp -O", None),
        recommended="scp",
        noise_floor=0.02,
        drift=0.1,
        drift_ci=(0.05, 0.15),
        flags=("drift",),
        stopped="the cap of 12 blocks",
    )
    return samples.link(
        samples.empty(),
        first,
        ceiling_end_Bps=11e6,
        rtt_end_ms=0.3,
        flags=("ceiling-changed",),
        models=samples.models(),
    )


def dead() -> summaries.LinkResult:
    reason = "3 of 3 runs unreachable: no route"
    methods = tuple(samples.method(label, None, n=0, reason=reason) for label in ("scp", "rsync -a"))
    nothing = samples.result(*methods, blocks=0, files=None, bytes=None, reason="no method was measured")
    return samples.link(nothing, nothing, name="two", ceiling_Bps=None, rtt_ms=None, connect_s=None)


def svg(text: str) -> ET.Element:
    assert text
    return ET.fromstring(text)


def by_class(root: ET.Element, cls: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.get("class", "").split()[:1] == [cls]]


def test_the_answer_stands_first() -> None:
    text = read(full(), dead(), missing=("link two: none of its 4 runs was measured",)).text
    start = text.index("What to use")
    row = (
        "one large 2 files, 80 MB scp 8.0 MB/s, 64 % of the ceiling firm 12 blocks; flags: drift fastest and encrypted"
    )
    assert start < text.index(row) < text.index("two not measured: 3 of 3 runs unreachable: no route")
    assert text.index(row) < text.index("Fixed cost of each method")
    assert text.index("Not all that was planned was measured") < text.index("link two: none of its 4 runs was measured")
    # The empty tree has no line among the answers, and the dead link one.
    answers = text[start : text.index("Fixed cost")]
    assert answers.count("firm") == 1


def test_the_answer_of_an_empty_tree_alone() -> None:
    only = samples.link(samples.result(samples.method(), scenario="empty", dataset="empty", recommended=None))
    assert "one only the fixed cost of each method was measured" in read(only).text


def test_provisional_is_marked() -> None:
    result = samples.result(samples.method(provisional=True, verdict="best"), blocks=3, blocks_needed=12)
    text = read(samples.link(result)).text
    assert text.count("provisional 3 blocks, firm from 12 on") == 2
    assert "firm 3 blocks" not in text
    none = samples.result(samples.method(encrypted=False), recommended=None, reason="only clear text was measured")
    assert "no recommendation firm 12 blocks only clear text was measured" in read(samples.link(none)).text


def test_all_that_qualifies_the_figures_is_there() -> None:
    text = read(full()).text
    for words in (
        "ceiling 12.5 MB/s, after the last run 11.0 MB/s",
        "round trip 0.20 ms, after the last run 0.30 ms",
        "ceiling-changed the link's ceiling, before the first run and after the last, differs by more than 10 %",
        "noise floor 2.0 %",
        "drift of the times from the first block to the last +10 % (+5.0 % to +15 %)",
        "scp: 2 runs far off the others: blocks 3, 7",
        "no more blocks: the cap of 12 blocks",
        "link tar|nc 99 % of it",
        "they count all the same (scp)",
        "could not be asked to write out (all methods)",
        "disqualified: 3 of 3 runs failed: gone",
        "tar|nc: no model: 2 trees were measured, it takes 3",
        "scp 0.500 2 12.5 2.1 % 5",
        "What 100 GB in 1000 files would take (extrapolated 5000 times)",
    ):
        assert words in text, words
    # Median, interval, to disk, MB/s, share, CPU at both ends of scp.
    assert "yes 10.000 9.875\N{EN DASH}10.125 10.500 8.0 64 ? 24 / 32 3 / 4 12 a" in text
    assert "a outliers some runs" in text
    # Fixed costs by time: tar|nc before rsync -a, the broken one last.
    assert re.search(r"tar\|nc 12 0\.031 .*rsync -a 12 0\.550 .*broken 12 disqualified", text)


def test_nothing_from_elsewhere_is_markup_or_loaded() -> None:
    odd = samples.ODD
    result = samples.result(
        samples.method(odd, limiter=odd, limiter_reason=odd, flags=(odd,), args={"x": odd}, reason=odd, encrypted=None),
        samples.method(odd + "2", 2.0, verdict=odd),
        samples.method(odd + "3", None, reason=odd),
        dataset=odd,
        scenario=odd,
        reason=odd,
        flags=(odd,),
        stopped=odd,
    )
    model = summaries.Model(odd, 1, None, None, None, None, odd, ())
    link = samples.link(result, name=odd, source=odd, target=odd, address=odd, flags=(odd,), models=(model,))
    text = page.html(samples.summary(link, campaign_id=odd, profile=odd, missing=(odd,)))
    text.encode("utf-8")
    assert all(character.isprintable() or character == "\n" for character in text)
    reader = Reader(text)
    # The one <b> of ours is in captions and in the list at the end.
    assert '<b>&"x"</b> | {{ 7*7 }} \\x1b[31m \\udc80 \\u202e' in reader.text
    tags = {tag for tag, _attributes in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "image", "use", "base", "form"}
    for _tag, attributes in reader.elements:
        assert not set(attributes) & {"src", "style", "srcset", "onload", "onclick", "xlink:href"}
        assert (attributes.get("href") or "#").startswith("#")
        assert "&" not in (attributes.get("class") or "")
    assert "url(" not in text
    assert "@import" not in text
    assert "http:" not in text
    assert "https:" not in text


@pytest.mark.parametrize(
    "links",
    [
        (),
        (samples.link(),),
        (samples.link(samples.result()),),
        (dead(),),
        (full(), dead(), full()),
        (samples.link(samples.result(samples.method()), ceiling_Bps=None),),
        (samples.link(samples.result(*(samples.method(f"{'tar|zstd ' * 8}{i}", 1.0 + i) for i in range(30)))),),
        (
            samples.link(
                samples.result(
                    samples.method(
                        throughput_Bps=None,
                        efficiency=None,
                        ratio_to_best=None,
                        ratio_ci=None,
                        ci_s=None,
                        cpu_s_per_GB={"source": None, "target": None},
                        cpu_percent={"source": None, "target": None},
                        encrypted=None,
                        verdict="unresolved",
                    ),
                    blocks=0,
                )
            ),
        ),
    ],
    ids=["no link", "no result", "no method", "dead", "three", "no ceiling", "thirty methods", "no figures"],
)
def test_every_page_is_whole(links: tuple[summaries.LinkResult, ...]) -> None:
    text = page.html(samples.summary(*links))
    reader = Reader(text)
    identifiers = [attributes["id"] for _tag, attributes in reader.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for _tag, attributes in reader.elements:
        targets = (attributes.get("aria-labelledby") or "").split()
        if attributes.get("href"):
            targets.append(str(attributes["href"])[1:])
        assert set(targets) <= set(identifiers)
    # In a table every line has as many cells as its head.
    for table in re.findall(r"<table.*?</table>", text, re.S):
        cells = {
            sum(int(span or 1) for span in re.findall(r'<t[hd](?=[ >])(?:[^>]*colspan="(\d+)")?', row))
            for row in re.findall(r"<tr.*?</tr>", table, re.S)
        }
        assert len(cells) == 1
    for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
        root = svg(drawing)
        _x, _y, width, height = map(float, root.attrib["viewBox"].split())
        for element in root.iter():
            for name in ("x", "x1", "x2", "cx"):
                assert 0 <= float(element.get(name, 0)) <= width
            for name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(element.get(name, 0)) <= height


def test_ratios_lie_on_a_logarithmic_axis() -> None:
    methods = [samples.method(label, ratio) for label, ratio in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0))]
    root = svg(charts.ratios(samples.result(*methods, noise_floor=math.sqrt(2) - 1), "x"))
    dots = [float(dot.attrib["cx"]) for dot in by_class(root, "dot")]
    # Equal ratios are equal distances; 1 + delta is the square root of 2 here, half of the way from 1 to 2.
    octave = (dots[3] - dots[0]) / 3
    assert [dot - dots[0] for dot in dots] == pytest.approx([0, octave, 2 * octave, 3 * octave], abs=0.2)
    (reference,) = by_class(root, "reference")
    assert float(reference.attrib["x1"]) == pytest.approx(dots[0] + octave / 2, abs=0.2)
    # The whiskers go from 0.97 to 1.03 times the ratio.
    whiskers = [line for line in by_class(root, "whisker") if line.attrib["y1"] == line.attrib["y2"]]
    assert len(whiskers) == 3
    assert float(whiskers[0].attrib["x1"]) == pytest.approx(dots[1] + octave * math.log2(0.97), abs=0.2)
    assert float(whiskers[0].attrib["x2"]) == pytest.approx(dots[1] + octave * math.log2(1.03), abs=0.2)
    assert by_class(root, "arrow") == []


def test_a_very_wide_interval_ends_in_arrows() -> None:
    wide = samples.method("b", 1.3, ratio_ci=(0.001, 4000.0), verdict="unresolved", provisional=True)
    root = svg(charts.ratios(samples.result(samples.method("a"), wide), "x"))
    assert len(by_class(root, "arrow")) == 2
    a, b = (float(dot.attrib["cx"]) for dot in by_class(root, "dot"))
    assert b - a > 30


def test_throughput_bars_share_a_scale_with_the_ceiling() -> None:
    methods = [samples.method("a", encrypted=False), samples.method("b", 2.0), samples.method("c", 4.0)]
    root = svg(charts.throughputs(samples.result(*methods), 12.5e6, "x"))
    bars = by_class(root, "bar")
    widths = [float(bar.attrib["width"]) for bar in bars]
    # 10, 5 and 2.5 MB/s below a ceiling of 12.5 MB/s.
    assert widths == pytest.approx([widths[0], widths[0] / 2, widths[0] / 4], abs=0.2)
    (reference,) = by_class(root, "reference")
    assert float(reference.attrib["x1"]) - float(bars[0].attrib["x"]) == pytest.approx(widths[0] * 1.25, abs=0.2)
    assert [bar.attrib["class"] for bar in bars] == ["bar clear", "bar", "bar"]
    text = ["".join(element.itertext()) for element in root.iter() if element.tag == "text"]
    assert "ceiling 12.5 MB/s" in text
    assert {"10.0", "80 %", "5.0", "40 %", "2.5", "20 %"} <= set(text)


def test_cpu_bars_of_both_ends() -> None:
    methods = [
        samples.method("a", cpu_percent={"source": 50.0, "target": 200.0}),
        samples.method("b", 2.0, cpu_percent={"source": None, "target": 25.0}),
    ]
    root = svg(charts.cpus(samples.result(*methods), "x"))
    bars = [(bar.attrib["class"], float(bar.attrib["width"])) for bar in by_class(root, "bar")]
    full = bars[1][1]
    assert [cls for cls, _width in bars] == ["bar source", "bar target", "bar target"]
    assert [width for _cls, width in bars] == pytest.approx([full / 4, full, full / 8], abs=0.2)
    (reference,) = by_class(root, "reference")
    assert float(reference.attrib["x1"]) - float(by_class(root, "bar")[0].attrib["x"]) == pytest.approx(
        full / 2, abs=0.2
    )
    assert "? / 25" in ["".join(element.itertext()) for element in root.iter()]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (12.5, [0, 5, 10]),
        (1200.0, [0, 500, 1000]),
        (0.55, [0, 0.2, 0.4]),
        (42.0, [0, 10, 20, 30, 40]),
        (1.0, [0, 0.5, 1]),
        (0.0031, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_linear_ticks_are_round(most: float, expected: list[float]) -> None:
    assert charts.linear_ticks(most) == expected


def test_one_method_is_not_compared_with_itself() -> None:
    assert charts.ratios(samples.result(samples.method()), "x") == ""
