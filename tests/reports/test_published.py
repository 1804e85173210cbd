"""The papers' numbers as shipped: whole, and consistent with their own averages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from reports.papers.published import Published, read
from reports.statistics.paired import mean

FOLDER = Path(__file__).parents[2] / "results" / "published"
PAGE = Path(__file__).parents[2] / "docs" / "published.md"
FIVE = {"bayes_weighted_cl": 113, "label_augmentation": 164, "nuclr": 110, "ncu": 348, "prolip": 542}
#: of noisy correspondence: six recalls a row, less 13 that repeat another column, and the sums that are printed
NOISY = {"ncr": 294, "decl": 798, "rcl": 722, "ugncl": 602, "ucpm": 623, "npc": 170, "osa": 285, "crcl": 21}
AVERAGES = ("Average", "Mean", "Average (38)")
GROUPS = ("IN dist. shifts (6)", "VTAB (13)", "Retrieval (3)")  #: averages of some, beside that of all


def same_row(numbers: Iterable[Published], one: Published) -> list[Published]:
    """The parts of a printed average: its row of its table, other averages and what the paper leaves out aside."""
    key = (one.table, one.method, one.pretrain, one.backbone, one.noise_rate, one.setting)
    return [
        n
        for n in numbers
        if (n.table, n.method, n.pretrain, n.backbone, n.noise_rate, n.setting) == key
        and n.dataset not in (*AVERAGES, *GROUPS)
        and not (one.paper == "ncu" and one.table == "1" and n.dataset.startswith("ImageNet"))
    ]


def averages() -> Iterable[tuple[Published, list[float]]]:
    for paper in FIVE:
        numbers = read(FOLDER, paper)
        for one in numbers:
            if one.metric == "average of six":
                parts = [n for n in same_row(numbers, one) if n.dataset == one.dataset and n != one]
            elif one.dataset in AVERAGES:
                parts = same_row(numbers, one)
            else:
                continue
            if len(parts) > 1:  # a table may print an average whose parts stand in another one
                yield one, [part.value for part in parts]


@pytest.mark.parametrize(("paper", "count"), [*FIVE.items(), *NOISY.items()])
def test_every_record_is_there(paper: str, count: int) -> None:
    numbers = read(FOLDER, paper)
    assert len(numbers) == count
    assert all(number.table and number.method and number.dataset and number.metric for number in numbers)


@pytest.mark.promise("every printed average of the papers recomputes from the printed numbers")
def test_every_printed_average_recomputes() -> None:
    found = list(averages())
    assert len(found) == 63
    assert {len(parts) for _, parts in found} == {4, 6, 14, 15, 38}
    for one, parts in found:
        printed_to = 0.005 if round(one.value, 1) != one.value or one.paper == "nuclr" else 0.05
        slack = 0.05 if one.paper == "bayes_weighted_cl" else printed_to + 0.005  # its parts have one decimal
        assert mean(parts) == pytest.approx(one.value, abs=slack), one


def noisy_rows() -> dict[tuple[str, str, str, str, str, float | None, str], dict[str, float]]:
    """(paper, table, method, backbone, data set, noise, setting) -> what is printed there, by metric."""
    rows: dict[tuple[str, str, str, str, str, float | None, str], dict[str, float]] = {}
    for one in (one for paper in NOISY for one in read(FOLDER, paper)):
        key = (one.paper, one.table, one.method, one.backbone, one.dataset, one.noise_rate, one.setting)
        assert one.metric not in rows.setdefault(key, {}), key
        rows[key][one.metric] = one.value
    return rows


@pytest.mark.promise("printed recalls of noisy correspondence add up to their printed sums, but for one print error")
def test_recalls_add_up_to_the_printed_sum() -> None:
    rows = noisy_rows()
    summed = {key: row["rSum"] - sum(row.values()) + row["rSum"] for key, row in rows.items() if "rSum" in row}
    assert (len(rows), len(summed)) == (523, 390)
    assert all(len(row) == 7 for row in rows.values() if "rSum" in row)
    wrong = [key for key, gap in summed.items() if abs(gap) > 6 * 0.05 + 0.01]  # each recall is rounded to a decimal
    assert wrong == [("ucpm", "I", "UCPM", "SGRAF", "Flickr30K", 0.2, "noise=own index (README links it)")]
    (note,) = {one.note for one in read(FOLDER, "ucpm") if one.note.startswith("the six recalls")}
    assert note == "the six recalls add up to 511.8, and the printed sum is 512.2"


@pytest.mark.promise("the numbers that docs/published.md quotes are those of the published tables")
def test_the_page_quotes_the_tables() -> None:
    rows, (head, *sections) = noisy_rows(), PAGE.read_text().split("\n## ")
    lines = [line.split(" | ") for line in head.splitlines() if line.startswith("| `")]
    source = {
        table: file
        for tables, _, files, _ in lines
        for table, file in zip(re.findall(r"`(\w+/\w+)`", tables), re.findall(r"`(\S+)`", files), strict=False)
    }
    images = sum(source.get(f"{paper}/{table}", "").endswith(".png") for paper, table, *_ in rows)
    methods = {re.split(r"\W", key[2])[0] for key in rows} | {"OSA"}  # variants count once; OSA is added to others
    assert f"{len(rows)} rows of {len(methods)}\nmethods" in head
    assert f"{images} rows were read off images" in head
    (several,) = [text for text in sections if text.startswith("One name, several numbers")]
    quoted = 0
    for method, dataset, rate, numbers in re.findall(r"^\| (\w+).* \| ([^|]+), (\d+) %.* \| (.*) \|$", several, re.M):
        for values, tables in re.findall(r"([^`]*)\((`.*?)\)", numbers):
            for paper, table in re.findall(r"`(\w+)/(\w+)`", tables):
                printed = {
                    round(row.get("rSum", sum(row.values())), 1)
                    for key, row in rows.items()
                    if key[:2] == (paper, table)
                    and key[2].startswith(method)
                    and key[4:6] == (dataset, int(rate) / 100)
                }
                said = {float(value) for value in re.findall(r"\d{3}\.\d", values)}
                assert said, tables
                assert said <= printed, (method, paper, table)
                quoted += len(said)
    assert quoted == 14, "each number once for each of its tables"


def test_known_numbers_and_print_errors() -> None:
    bayes = read(FOLDER, "bayes_weighted_cl")
    (headline,) = [
        n for n in bayes if (n.method, n.dataset, n.metric, n.table) == ("OURS", "ImageNet1K", "zero-shot top1", "1")
    ]
    assert headline.value == 20.96
    assert headline.noise_rate == 0.1
    assert headline.source == "bayes_weighted_cl, Table 1"
    cars = [n.value for n in bayes if n.method == "CLIP" and n.table == "3" and n.dataset == "StanfordCars"]
    assert cars == [17.7]  # printed under Flowers102
    nuclr = next(n for n in read(FOLDER, "nuclr") if n.method == "NUCLR" and n.dataset == "Mean")
    assert (nuclr.value, nuclr.std) == (40.26, 0.19)
