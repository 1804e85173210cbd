"""The section of a suite's YAML that names printed tables, as a typed model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from bench import resources
from bench.errors import nearest
from bench.settings_base import Model, NoDuplicates, NonEmptyList, one_or_several, printable_line
from bench.yaml_source import fault


class PrintedRow(Model):
    """Printed rows next to which an entry is shown: those that match all of these."""

    method: Annotated[str, Field(min_length=1)]  #: as printed
    setting: str | None = None  #: as in `results/published`, such as "gamma=0.1"
    pretrain: str | None = None  #: pretraining data as printed, where a table has several
    backbone: str | None = None  #: backbone as printed, where a table has several


class PaperTables(Model):
    """Tables of a paper that the report lays out as printed, this suite's numbers next to the printed ones."""

    paper: Annotated[str, Field(min_length=1)]  #: a file of `results/published`
    numbers: Annotated[tuple[str, ...], NonEmptyList, NoDuplicates]  #: numbers of its tables, as printed
    pretrain: str | None = None  #: of the printed rows that this suite is about; null = all
    backbone: str | None = None  #: the same; null = all, or as `towers` says
    towers: dict[str, str] = Field(default_factory=dict)  #: label of towers -> printed backbone
    #: what is different in this suite; the title of the printed table then says "another setting"
    differs: Annotated[str, Field(max_length=500), AfterValidator(printable_line)] = ""
    #: label of a method -> the printed rows that it is shown next to
    rows: dict[str, Annotated[tuple[PrintedRow, ...], NonEmptyList]] = Field(default_factory=dict)

    @field_validator("paper")
    @classmethod
    def _is_published(cls, paper: str) -> str:
        papers = [file.stem for file in resources.published_folder().glob("*.csv")]
        if paper not in papers:
            raise fault(f"no paper {paper!r}{nearest(paper, papers)}")
        return paper

    @field_validator("rows", mode="before")
    @classmethod
    def _one_or_several(cls, rows: Any) -> Any:
        """A bare name is a row's method."""
        if not isinstance(rows, dict):
            return rows
        several = {label: row if isinstance(row, list) else [row] for label, row in rows.items()}
        return {
            label: [{"method": one} if isinstance(one, str) else one for one in found]
            for label, found in several.items()
        }


PrintedTables = Annotated[
    tuple[PaperTables, ...], one_or_several, BeforeValidator(lambda given: () if given is None else given)
]
