"""Print and save what grading found."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from course.check import feedback
from course.grade.grading import Report

COLOURS = {"pass": "green", "wrong": "red", "error": "red", "policy": "magenta", "missing": "yellow", "infra": "cyan"}


def print_report(report: Report, console: Console) -> None:
    """A table of verdicts, then the feedback on each answer that earned nothing."""
    table = Table(title=f"{report.name}: {report.points} of {report.possible} points", title_justify="left")
    table.add_column("exercise")
    table.add_column("verdict")
    table.add_column("points", justify="right")
    table.add_column("mistake")
    for verdict in report.verdicts:
        earned = verdict.exercise.points if verdict.passed else 0
        table.add_row(
            Text(verdict.exercise.id), Text(verdict.kind, style=COLOURS.get(verdict.kind, "red")),
            f"{earned} / {verdict.exercise.points}", Text(verdict.mistake.name if verdict.mistake else ""),
        )
    console.print(table)
    if report.unreadable:
        console.print(Text(f"unreadable: {report.unreadable}"))
        return
    for warning in report.warnings:
        console.print(Text(f"note: {warning}"))
    for verdict in report.verdicts:
        if not verdict.passed and verdict.kind != "missing":
            console.print(Text(feedback.text(verdict)))


def to_dict(report: Report) -> dict:
    """The report as JSON-ready data. Hidden inputs are not in it."""
    return {
        "v": 1, "name": report.name, "path": report.path, "digest": report.digest, "points": report.points,
        "possible": report.possible, "unreadable": report.unreadable, "warnings": report.warnings,
        "sandbox": "none: separate process, time and memory limits only",
        "exercises": [
            {
                "id": verdict.exercise.id, "verdict": verdict.kind, "possible": verdict.exercise.points,
                "points": verdict.exercise.points if verdict.passed else 0,
                "mistake": verdict.mistake.name if verdict.mistake else None,
                "section": verdict.mistake.section if verdict.mistake else None,
                "cases_right": verdict.cases_right, "cases_total": verdict.cases_total,
            }
            for verdict in report.verdicts
        ],
    }


def save(reports: list[Report], path: Path) -> None:
    """Write all reports as one JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps([to_dict(report) for report in reports], indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path)
