"""Reports of a class: JSON and a feedback page for each student, CSV files, JUnit, Gradescope, an overview."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import html
import io
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from course.grade.batch import Graded, Mark
from course.grade.identity import safe
from course.grade.settings import Settings
from course.specs import exercise, file_stem

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;
max-width:52rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.4rem .6rem;border-bottom:1px solid #8885;
vertical-align:top}}.n{{text-align:right;white-space:nowrap}}.pass{{color:#15803d}}.not{{color:#c2410c}}pre{{overflow-x:auto;
font-size:.85rem;background:#8881;padding:.6rem}}small{{opacity:.75}}@media(prefers-color-scheme:dark){{.pass{{color:#4ade80}}
.not{{color:#fb923c}}}}</style><h1>{title}</h1>{body}</html>
"""


CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
MOODLE = ("Full name", "Identifier", "Email address", "ID number")


def publish(graded: list[Graded], out: Path, settings: Settings, people: dict[str, dict] | None = None) -> None:
    """Write all reports below ``out``. Each file is written whole or not at all.

    people: by student, what a roster says of them besides their name (see :func:`gradebook_csv`).
    """
    people = people or {}
    for student, items in sorted(_by_student(graded).items()):
        folder = out / "students" / safe(student)
        _write(folder / "report.json", _json([_report(item, settings) for item in items]))
        _write(folder / "feedback.html", feedback_page(student, items, settings))
        _write(folder / "results.json", _json(gradescope(items, settings)))
    _write(out / "grades.csv", grades_csv(graded, settings))
    _write(out / "exercises.csv", exercises_csv(graded, settings))
    _write(out / "canvas.csv", gradebook_csv(graded, settings, CANVAS, people, possible_row=True))
    _write(out / "moodle.csv", gradebook_csv(graded, settings, MOODLE, people))
    _write(out / "junit.xml", junit(graded))
    _write(out / "overview.html", overview_page(graded, settings))
    _write(out / "grades.json", _json([dataclasses.asdict(item) | {"sources": {}} for item in _ordered(graded)]))


def merge(folders: list[Path]) -> list[Graded]:
    """Graded submissions of several report folders (shards) together. Raises ValueError for a folder without one."""
    found = []
    for folder in folders:
        try:
            data = json.loads((folder / "grades.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder} holds no finished report ({error})") from None
        for entry in data:
            entry["marks"] = [Mark(**mark) for mark in entry["marks"]]
            found.append(Graded(**entry))
    return found


def together(earlier: list[Graded], fresh: list[Graded]) -> list[Graded]:
    """What was graded before into the same folder, with the fresh results in the place of older ones."""
    replaced = {(item.student, item.stem) for item in fresh}
    return [item for item in earlier if (item.student, item.stem) not in replaced] + fresh


def _by_student(graded: list[Graded]) -> dict[str, list[Graded]]:
    found: dict[str, list[Graded]] = defaultdict(list)
    for item in _ordered(graded):
        found[item.student].append(item)
    return found


def _ordered(graded: list[Graded]) -> list[Graded]:
    return sorted(graded, key=lambda item: (item.student, item.stem, item.path))


def score(item: Graded, settings: Settings) -> tuple[float, float]:
    """Weighted points and possible points of a submission."""
    return settings.score(item.marks)


def best(graded: list[Graded], settings: Settings) -> list[Graded]:
    """Of each student's graded attempts at a chapter the one with most points; of equals the last in the list."""
    kept: dict[tuple[str, str], Graded] = {}
    for item in graded:
        key = (item.student, item.stem)
        if key not in kept or score(item, settings)[0] >= score(kept[key], settings)[0]:
            kept[key] = item
    return list(kept.values())


def _shown(mark: Mark, settings: Settings) -> str:
    """What the student reads about a mark."""
    show = settings.showing()
    if show == "full" and mark.details:
        return mark.details
    return mark.says if show != "verdict" or mark.verdict == "pass" else ""


def _report(item: Graded, settings: Settings) -> dict:
    got, possible = score(item, settings)
    return {
        "v": 1,
        "student": item.student,
        "chapter": item.stem,
        "points": got,
        "possible": possible,
        "unreadable": item.unreadable,
        "warnings": item.warnings,
        "digest": item.digest,
        "sandbox": item.sandbox,
        "look_at": item.look_at,
        "exercises": [
            {
                "id": mark.id,
                "verdict": mark.verdict,
                "points": mark.points * settings.weight(mark.id),
                "possible": mark.possible * settings.weight(mark.id),
                "says": _shown(mark, settings),
                "reread": "" if mark.verdict == "pass" else mark.section,
            }
            for mark in item.marks
            if settings.weight(mark.id)
        ],
    }


def gradescope(items: list[Graded], settings: Settings) -> dict:
    """Gradescope's results.json for one student."""
    tests = []
    for item in items:
        for mark in item.marks:
            weight = settings.weight(mark.id)
            if weight:
                tests.append(
                    {
                        "name": mark.id,
                        "score": mark.points * weight,
                        "max_score": mark.possible * weight,
                        "status": "passed" if mark.verdict == "pass" else "failed",
                        "output": f"[{mark.verdict}] {_shown(mark, settings)}",
                        "visibility": "visible",
                    }
                )
    return {
        "score": sum(score(item, settings)[0] for item in items),
        "tests": tests,
        "output": "; ".join(sorted({item.sandbox for item in items})),
    }


def feedback_page(student: str, items: list[Graded], settings: Settings) -> str:
    """A readable page for one student."""
    parts = []
    for item in items:
        got, possible = score(item, settings)
        parts.append(f"<h2>{html.escape(_chapter(item))}: {got:g} of {possible:g} points</h2>")
        if item.unreadable:
            parts.append(f"<p class=not>This file could not be read: {html.escape(item.unreadable)}</p>")
        for warning in item.warnings:
            parts.append(f"<p><small>{html.escape(warning)}</small></p>")
        rows = []
        for mark in item.marks:
            if not settings.weight(mark.id):
                continue
            good = mark.verdict == "pass"
            text = html.escape(_shown(mark, settings))
            if settings.showing() == "full" and mark.details:
                text = f"<pre>{text}</pre>"
            if not good and mark.section:
                text += f"<br><small>reread {html.escape(_place(mark.section))}</small>"
            rows.append(
                f"<tr><td>{html.escape(exercise(mark.id).title)}<br><small>{html.escape(mark.id)}</small></td>"
                f"<td class={'pass' if good else 'not'}>{mark.verdict}</td>"
                f"<td class=n>{mark.points * settings.weight(mark.id):g} / "
                f"{mark.possible * settings.weight(mark.id):g}</td><td>{text}</td></tr>"
            )
        parts.append(
            "<table><tr><th>exercise<th>verdict<th class=n>points<th>what to know</tr>" + "".join(rows) + "</table>"
        )
        parts.append(f"<p><small>answers ran in: {html.escape(item.sandbox)}</small></p>")
    return _PAGE.format(title=f"Feedback for {html.escape(student)}", body="".join(parts))


def _chapter(item: Graded) -> str:
    return file_stem(item.stem).replace("_", " ") if item.stem else Path(item.path).name


def _place(section: str) -> str:
    """A section of the book in words: ``04_kv_cache.html#the-race`` is "04 kv cache, the race"."""
    return section.replace(".html#", ", ").removesuffix(".html").replace("_", " ").replace("-", " ")


def overview_page(graded: list[Graded], settings: Settings) -> str:
    """The class at a glance: points by exercise, and which mistakes were made how often."""
    by_exercise: dict[str, list[Mark]] = defaultdict(list)
    for item in graded:
        for mark in item.marks:
            by_exercise[mark.id].append(mark)
    rows = []
    for name, marks in by_exercise.items():
        passed = sum(mark.verdict == "pass" for mark in marks)
        mistakes = Counter(mark.mistake for mark in marks if mark.mistake).most_common(5)
        kinds = Counter(mark.verdict for mark in marks if mark.verdict != "pass")
        said = "".join(f"<br>{count} × {html.escape(mistake)}" for mistake, count in mistakes)
        rows.append(
            f"<tr><td>{html.escape(name)}</td><td class=n>{passed} of {len(marks)}</td>"
            f"<td>{html.escape(', '.join(f'{count} {kind}' for kind, count in kinds.most_common()))}{said}</td></tr>"
        )
    pairs = similar(graded)
    alike = (
        "".join(f"<li>{html.escape(name)}: {html.escape(', '.join(who))}</li>" for name, who in pairs)
        or "<li>none</li>"
    )
    odd = [(item, reason) for item in _ordered(graded) for reason in item.look_at]
    looks = (
        "".join(f"<li>{html.escape(item.student)}: {html.escape(reason)}</li>" for item, reason in odd)
        or "<li>none</li>"
    )
    body = (
        f"<p>{len(graded)} submissions, {len(_by_student(graded))} students.</p>"
        "<table><tr><th>exercise<th class=n>passed<th>verdicts and mistakes by name</tr>" + "".join(rows) + "</table>"
        "<h2>Identical after renaming and reformatting</h2><p><small>A hint to look, never a verdict: short tasks have "
        f"few right answers.</small></p><ul>{alike}</ul>"
        "<h2>Look at this</h2><p><small>Odd, not forbidden; no point depends on it. Ask the student what the line does."
        f"</small></p><ul>{looks}</ul>"
    )
    return _PAGE.format(title="The class at a glance", body=body)


def similar(graded: list[Graded], least: int = 40) -> list[tuple[str, list[str]]]:
    """Exercises whose answers by different students have the same syntax tree, names and texts apart."""
    import ast

    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in graded:
        for name, source in item.sources.items():
            try:
                tree = ast.parse(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            shape = " ".join(type(node).__name__ for node in ast.walk(tree) if not isinstance(node, ast.Load))
            if shape.count(" ") >= least:
                groups[name, shape].add(item.student)
    return sorted((name, sorted(who)) for (name, _), who in groups.items() if len(who) > 1)


def grades_csv(graded: list[Graded], settings: Settings) -> str:
    rows = [("student", "chapter", "points", "possible", "unreadable", "look_at", "file")]
    for item in _ordered(graded):
        got, possible = score(item, settings)
        rows.append((item.student, item.stem, f"{got:g}", f"{possible:g}", item.unreadable, "; ".join(item.look_at),
                     Path(item.path).name))
    return _csv(rows)


def exercises_csv(graded: list[Graded], settings: Settings) -> str:
    rows = [("student", "exercise", "verdict", "points", "possible", "mistake")]
    for item in _ordered(graded):
        for mark in item.marks:
            weight = settings.weight(mark.id)
            rows.append(
                (
                    item.student,
                    mark.id,
                    mark.verdict,
                    f"{mark.points * weight:g}",
                    f"{mark.possible * weight:g}",
                    mark.mistake,
                )
            )
    return _csv(rows)


def gradebook_csv(graded: list[Graded], settings: Settings, columns: tuple[str, ...], people: dict[str, dict],
                  possible_row: bool = False) -> str:
    """What a learning platform imports: a row for each student, a column for each chapter, named as its notebook.

    columns: the platform's own, to tell students by; the first holds the name, ``ID`` and ``Identifier`` the number
    that the platform put into a file's name, unless ``people`` (columns of the roster, by student) knows better. A
    chapter that was not handed in, or that the grader itself failed on, is left empty: nobody gets a zero unasked.
    """
    stems = sorted({item.stem for item in graded if item.stem}, key=file_stem)
    rows = [(*columns, *(file_stem(stem) for stem in stems))]
    if possible_row:
        most = {item.stem: score(item, settings)[1] for item in graded}
        rows.append(("Points Possible", *[""] * (len(columns) - 1), *(f"{most[stem]:g}" for stem in stems)))
    for student, items in _by_student(graded).items():
        known = people.get(student, {})
        number = next((item.lms_id for item in items if item.lms_id), "")
        defaults = {"ID": number, "Identifier": f"Participant {number}" if number else ""}
        points = {item.stem: _gradebook_points(item, settings) for item in items}
        rows.append((student, *(known.get(name) or defaults.get(name, "") for name in columns[1:]),
                     *(points.get(stem, "") for stem in stems)))
    return _csv(rows)


def _gradebook_points(item: Graded, settings: Settings) -> str:
    failed = any(mark.verdict == "infra" and settings.weight(mark.id) for mark in item.marks)
    return "" if failed else f"{score(item, settings)[0]:g}"


def junit(graded: list[Graded]) -> str:
    """One test case for each mark."""
    suites = ElementTree.Element("testsuites")
    for item in _ordered(graded):
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml(f"{item.student} {item.stem}"),
            tests=str(len(item.marks)),
            failures=str(sum(mark.verdict != "pass" for mark in item.marks)),
        )
        for mark in item.marks:
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(item.student), name=mark.id)
            if mark.verdict != "pass":
                ElementTree.SubElement(case, "failure", message=mark.verdict).text = _xml(mark.says)
    return ElementTree.tostring(suites, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Text without characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff")


def _csv(rows: list[tuple]) -> str:
    """CSV text; a cell that a spreadsheet would run as a formula gets an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if str(cell)[:1] in ("=", "+", "-", "@", "\t") else cell for cell in row])
    return file.getvalue()


def _json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", errors="replace")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # a read-only file system refuses this too
            temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"{error.strerror}: {path} cannot be written. All marks are kept in the folder marks; "
            "make room or name another folder with --report, and run again",
        ) from None
