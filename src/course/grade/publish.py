"""Reports of a class: JSON and a feedback page for each student, CSV files, JUnit, Gradescope, an overview."""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import hashlib
import html
import io
import json
import os
import re
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from course import syntax
from course.grade.batch import Graded, Mark
from course.grade.identity import bare_name, folders, lookalikes, shown, told_apart
from course.grade.settings import Settings
from course.specs import exercises, file_stem

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;
max-width:52rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.4rem .6rem;border-bottom:1px solid #8885;
vertical-align:top;overflow-wrap:break-word}}
.n{{text-align:right;white-space:nowrap}}.pass{{color:#15803d}}.not{{color:#c2410c}}pre{{overflow-x:auto;
font-size:.85rem;background:#8881;padding:.6rem}}small{{opacity:.75}}@media(prefers-color-scheme:dark){{.pass{{color:#4ade80}}
.not{{color:#fb923c}}}}@media(max-width:40rem){{th{{display:none}}tr{{display:block;padding:.5rem 0;
border-bottom:1px solid #8885}}td{{display:block;border:0;padding:.1rem 0}}td.n{{text-align:left}}
td[data-is]::after{{content:' ' attr(data-is)}}}}
</style><h1>{title}</h1>{body}</html>
"""


CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
MOODLE = ("Full name", "Identifier", "Email address", "ID number")


def publish(graded: list[Graded], out: Path, settings: Settings, people: dict[str, dict] | None = None,
            notes: list[str] | None = None) -> None:
    """Write all reports below ``out``. Each file is written whole or not at all.

    people: by student, what a roster says of them besides their name (see :func:`gradebook_csv`); notes: what the
    instructor should know before the grades go out.
    """
    people = people or {}
    places = folders(item.student for item in graded)
    for student, items in sorted(_by_student(graded).items()):
        folder = out / "students" / places[student]
        _write(folder / "report.json", _json([_report(item, settings) for item in items]))
        _write(folder / "feedback.html", feedback_page(student, items, settings))
        if any(not_graded(item, settings) for item in items):  # no file: Gradescope says that the autograder failed
            (folder / "results.json").unlink(missing_ok=True)
        else:
            _write(folder / "results.json", _json(gradescope(items, settings)))
    _write(out / "grades.csv", grades_csv(graded, settings))
    _write(out / "exercises.csv", exercises_csv(graded, settings))
    _write(out / "canvas.csv", gradebook_csv(graded, settings, CANVAS, people, possible_row=True))
    _write(out / "moodle.csv", gradebook_csv(graded, settings, MOODLE, people))
    _write(out / "junit.xml", junit(graded))
    _write(out / "overview.html", overview_page(graded, settings, notes))
    _write(out / "grades.json", _json([dataclasses.asdict(item) | {"sources": {}, "shapes": _shapes(item)}
                                         for item in _ordered(graded)]))
    _write(out / "settings.json", _json(_plain(settings)))
    _tidy(out / "students", set(places.values()))


def _plain(settings: Settings) -> dict:
    return json.loads(json.dumps(dataclasses.asdict(settings), default=str))


def settings_changed(out: Path, settings: Settings) -> list[str]:
    """A note when the last reports in this folder followed other settings; all points follow today's."""
    try:
        before = dict(json.loads((out / "settings.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return []
    now = _plain(settings)
    changed = [f"{key} was {before.get(key)!r} and is {now[key]!r}" for key in now if before.get(key) != now[key]]
    return [f"the settings are not those of the last run: {'; '.join(changed)}. All points are reckoned anew by today's"
            ] if changed else []


def _tidy(students: Path, current: set[str]) -> None:
    """Remove the reports of names that are no longer in the class: a student renamed by a roster has one grade."""
    for folder in students.iterdir() if students.is_dir() else ():
        if folder.name not in current and not folder.is_symlink() and folder.is_dir():
            for name in ("report.json", "feedback.html", "results.json"):
                (folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody put something of their own there
                folder.rmdir()


def merge(folders: list[Path]) -> list[Graded]:
    """Graded submissions of several report folders together. Raises ValueError for a folder without a report, for one
    that another release made, and when two folders say different things of one student's chapter."""
    found: list[Graded] = []
    seen: dict[tuple[str, str], Path] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        mine = _read(folder)
        for item in mine:
            key = (item.student, item.stem or item.path)
            if seen.get(key, folder) == folder:
                seen[key] = folder
                found.append(item)
            elif not any(_same(item, other) for other in found if (other.student, other.stem) == key):
                raise ValueError(
                    f"{shown(item.student)}, {item.stem}: graded in {seen[key]} and in {folder}, on different files. "
                    "Shards of one run never share a student: grade the submissions of both in one run, and if these "
                    "are two people of one name, give --roster"
                )
    return found


def _same(one: Graded, other: Graded) -> bool:
    return (one.digest, one.unreadable, one.marks) == (other.digest, other.unreadable, other.marks)


def _read(folder: Path) -> list[Graded]:
    try:
        data = json.loads((folder / "grades.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} holds no finished report of `course grade` ({error})") from None
    try:
        return [Graded(**{**entry, "marks": [Mark(**mark) for mark in entry["marks"]]}) for entry in data]
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{folder} holds a report that another release of the course wrote: keep it, and give a new "
                         "folder with --report") from None


def together(earlier: list[Graded], fresh: list[Graded], settings: Settings, all_attempts: bool = False,
             same_names: bool = True) -> tuple[list[Graded], list[str]]:
    """What was graded before into the same folder, with the fresh results in the place of older ones; and what there is
    to say about it.

    A file that was graded again counts as it is now, whoever it was thought to be of (unless not ``same_names``, where
    the caller names the student). Otherwise a fresh result replaces that of the same student and chapter, or with
    attempt = "best" only a worse one.
    """
    notes: list[str] = []
    paths = {os.path.abspath(item.path) for item in fresh}
    by_task: dict[tuple[str, str], list[Graded]] = defaultdict(list)
    for item in fresh:
        by_task[bare_name(item), item.stem].append(item)
    kept = []
    for item in earlier:
        rivals = [new for new in by_task[bare_name(item), item.stem] if _one_person(item, new)]
        if os.path.abspath(item.path) in paths and (same_names or rivals):
            continue
        if rivals and (settings.attempt != "best" or all_attempts):
            notes.append(f"{item.student}, {item.stem}: {rivals[-1].path} takes the place of {item.path}")
            if settings.attempts:
                notes[-1] += "; attempts are counted within a run, so give all that was handed in at once"
            continue
        kept.append(item)
    united = told_apart(kept + fresh)
    return (best(united, settings) if settings.attempt == "best" and not all_attempts else united), notes


def _one_person(one: Graded, other: Graded) -> bool:
    """Of two results under one name: are they of one person, as far as the platform's numbers tell?"""
    return not one.lms_id or not other.lms_id or one.lms_id == other.lms_id


def earlier(folder: Path | None) -> list[Graded]:
    """What was graded into this folder before. Raises ValueError when another release of the course did."""
    return merge([folder]) if folder and (folder / "grades.json").is_file() else []


def outdated(graded: list[Graded], version: str) -> list[str]:
    """A note on results of other checkers than this version's (see :func:`course.grade.batch.version`), if any."""
    names = sorted({item.student for item in graded if item.checkers != version})
    return [f"graded by other checkers than today's, or with other constants: {', '.join(names)}. Their points may not "
            "be comparable: grade them once more, together with the others"] if names else []


def versions_differ(graded: list[Graded]) -> list[str]:
    """A note when not all results come from the same checkers."""
    versions = Counter(item.checkers for item in graded)
    return outdated(graded, versions.most_common(1)[0][0]) if len(versions) > 1 else []


def to_do(graded: list[Graded], settings: Settings, people: dict[str, dict]) -> list[str]:
    """What an instructor should know before these grades go out, in sentences."""
    said = []
    for item in _ordered(graded):
        failed = not_graded(item, settings)
        if failed:
            said.append(f"{item.student}, {item.stem}: the grader failed on {', '.join(failed)}; the points are left "
                        "open, no zero. Run again")
    names = sorted({item.student for item in graded if item.unreadable})
    if names:
        said.append(f"unreadable, and therefore 0 points until a better file comes: {', '.join(names)}")
    if people:
        strange = sorted({item.student for item in graded} - set(people))
        absent = sorted(set(people) - {item.student for item in graded})
        if strange:
            said.append(f"not in the roster: {', '.join(strange)}")
        if absent:
            said.append(f"in the roster, and nothing handed in: {', '.join(absent)}")
    for group in lookalikes(item.student for item in graded):
        said.append(f"names that differ by case or blanks only: {', '.join(map(repr, group))}. If this is one person, "
                    "give a folder one name, or a roster")
    return said


def not_graded(item: Graded, settings: Settings) -> list[str]:
    """Exercises that count and that the grader itself failed on."""
    return [mark.id for mark in item.marks if mark.verdict == "infra" and settings.weight(mark.id)]


def counted(graded: list[Graded], settings: Settings) -> list[Graded]:
    """Of each student's chapter the attempt that counts: `--all-attempts` reports several, and none counts twice."""
    in_time = sorted(graded, key=lambda item: (item.attempt, item.when, item.path))
    if settings.attempt == "best":
        return best(in_time, settings)
    return list({(item.student, item.stem or item.path): item for item in in_time}.values())


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
    """Of each student's graded attempts at a chapter the one with most points; of equals the last in the list.

    Where the grader failed, full points are reckoned with: which attempt is the best is not known until it is mended.
    """
    kept: dict[tuple[str, str], Graded] = {}
    for item in graded:
        key = (item.student, item.stem or item.path)
        if key not in kept or _at_most(item, settings) >= _at_most(kept[key], settings):
            kept[key] = item
    return list(kept.values())


def _at_most(item: Graded, settings: Settings) -> float:
    hoped = {mark.id: mark.possible if mark.verdict == "infra" else mark.points for mark in item.marks}
    return settings.score([dataclasses.replace(mark, points=hoped[mark.id]) for mark in item.marks])[0]


def _points(item: Graded, settings: Settings) -> float | None:
    """Weighted points; None while an exercise that counts could not be graded."""
    return None if not_graded(item, settings) else round(score(item, settings)[0], 6)


def _cell(points: float | None) -> str:
    return "" if points is None else f"{points:.10g}"


def _shown(mark: Mark, settings: Settings) -> str:
    """What the student reads about a mark."""
    show = settings.showing()
    if show == "full" and mark.details:
        return mark.details
    return mark.says if show != "verdict" or mark.verdict == "pass" else ""


def _report(item: Graded, settings: Settings) -> dict:
    return {
        "v": 1,
        "student": item.student,
        "chapter": item.stem,
        "points": _points(item, settings),
        "possible": round(score(item, settings)[1], 6),
        "not_graded": not_graded(item, settings),
        "late": item.late,
        "unreadable": item.unreadable,
        "warnings": item.warnings,
        "digest": item.digest,
        "sandbox": item.sandbox,
        "look_at": item.look_at,
        "exercises": [
            {
                "id": mark.id,
                "verdict": mark.verdict,
                "points": None if mark.verdict == "infra" else mark.points * settings.weight(mark.id),
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
    items = counted(items, settings)
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
        "score": round(sum(score(item, settings)[0] for item in items), 6),
        "tests": tests,
        "output": "; ".join(sorted({item.sandbox for item in items})),
    }


def feedback_page(student: str, items: list[Graded], settings: Settings) -> str:
    """A readable page for one student."""
    parts = []
    counts = counted(items, settings)
    for item in items:
        got, possible = score(item, settings)
        failed = not_graded(item, settings)
        so_far = f", so far, {len(failed)} not graded yet" if failed else ""
        parts.append(f"<h2>{html.escape(_chapter(item))}: {got:.10g} of {possible:.10g} points{so_far}</h2>")
        if len(items) > len(counts):
            parts.append("<p>This attempt counts.</p>" if item in counts else "<p>Another attempt counts.</p>")
        if failed:
            parts.append("<p>The grader failed on a part of this, not you. It is no zero: it will be graded again.</p>")
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
            points = "–" if mark.verdict == "infra" else f"{mark.points * settings.weight(mark.id):.10g}"
            rows.append(
                f"<tr><td>{html.escape(_title(mark.id))}<br><small>{html.escape(mark.id)}</small></td>"
                f"<td class={'pass' if good else 'not'}>{mark.verdict}</td>"
                f"<td class=n data-is=points>{points} / {mark.possible * settings.weight(mark.id):.10g}</td>"
                f"<td>{text}</td></tr>"
            )
        parts.append(
            "<table><tr><th>exercise<th>verdict<th class=n>points<th>what to know</tr>" + "".join(rows) + "</table>"
        )
        parts.append(f"<p><small>answers ran in: {html.escape(item.sandbox)}</small></p>")
    return _PAGE.format(title=f"Feedback for {html.escape(student)}", body="".join(parts))


def _title(exercise_id: str) -> str:
    known = {item.id: item.title for item in exercises()}
    return known.get(exercise_id, "no longer part of the course")


def _chapter(item: Graded) -> str:
    return file_stem(item.stem).replace("_", " ") if item.stem else Path(item.path).name


def _place(section: str) -> str:
    """A section of the book in words: ``04_kv_cache.html#the-race`` is "04 kv cache, the race"."""
    return section.replace(".html#", ", ").removesuffix(".html").replace("_", " ").replace("-", " ")


def overview_page(graded: list[Graded], settings: Settings, notes: list[str] | None = None) -> str:
    """The class at a glance: what is still to do, points by exercise, and which mistakes were made how often."""
    listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes or [])
    by_exercise: dict[str, list[Mark]] = defaultdict(list)
    for item in counted(graded, settings):
        for mark in item.marks:
            by_exercise[mark.id].append(mark)
    rows = []
    for name, marks in by_exercise.items():
        passed = sum(mark.verdict == "pass" for mark in marks)
        mistakes = Counter(mark.mistake for mark in marks if mark.mistake).most_common(5)
        kinds = Counter(mark.verdict for mark in marks if mark.verdict != "pass")
        said = "".join(f"<br>{count} × {html.escape(mistake)}" for mistake, count in mistakes)
        rows.append(
            f"<tr><td>{html.escape(name)}</td><td class=n data-is=passed>{passed} of {len(marks) - kinds['infra']}</td>"
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
        + (f"<h2>Before the grades go out</h2><ul>{listed}</ul>" if listed else "")
        + "<h2>Exercises</h2>"
        "<table><tr><th>exercise<th class=n>passed<th>verdicts and mistakes by name</tr>" + "".join(rows) + "</table>"
        "<h2>Identical after renaming and reformatting</h2><p><small>A hint to look, never a verdict: short tasks have "
        f"few right answers.</small></p><ul>{alike}</ul>"
        "<h2>Look at this</h2><p><small>Odd, not forbidden; no point depends on it. Ask the student what the line does."
        f"</small></p><ul>{looks}</ul>"
    )
    return _PAGE.format(title="The class at a glance", body=body)


def similar(graded: list[Graded]) -> list[tuple[str, list[str]]]:
    """Exercises whose answers by different students have the same syntax tree, names and texts apart."""
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in graded:
        for name, shape in _shapes(item).items():
            groups[name, shape].add(item.student)
    return sorted((name, sorted(who)) for (name, _), who in groups.items() if len(who) > 1)


def _shapes(item: Graded, least: int = 40) -> dict[str, str]:
    """Digest of each answer's syntax tree, if it has at least so many nodes; kept in reports, which hold no sources."""
    if item.shapes or not item.sources:
        return item.shapes
    found = {}
    for name, source in item.sources.items():
        try:
            tree = syntax.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        nodes = [type(node).__name__ for node in ast.walk(tree) if not isinstance(node, ast.Load)]
        if len(nodes) > least:
            found[name] = hashlib.sha256(" ".join(nodes).encode()).hexdigest()[:16]
    return found


def grades_csv(graded: list[Graded], settings: Settings) -> str:
    rows: list[tuple] = [("student", "chapter", "points", "possible", "counts", "late", "not_graded", "unreadable",
                          "look_at", "file")]
    counts = {id(item) for item in counted(graded, settings)}
    for item in _ordered(graded):
        rows.append((item.student, item.stem, _cell(_points(item, settings)), _cell(score(item, settings)[1]),
                     "yes" if id(item) in counts else "no, another attempt", "late" if item.late else "",
                     "; ".join(not_graded(item, settings)), item.unreadable, "; ".join(item.look_at),
                     Path(item.path).name))
    return _csv(rows)


def exercises_csv(graded: list[Graded], settings: Settings) -> str:
    rows = [("student", "exercise", "verdict", "points", "possible", "mistake", "file")]
    for item in _ordered(graded):
        for mark in item.marks:
            weight = settings.weight(mark.id)
            points = None if mark.verdict == "infra" else mark.points * weight
            rows.append((item.student, mark.id, mark.verdict, _cell(points), _cell(mark.possible * weight),
                         mark.mistake, Path(item.path).name))
    return _csv(rows)


def gradebook_csv(graded: list[Graded], settings: Settings, columns: tuple[str, ...], people: dict[str, dict],
                  possible_row: bool = False) -> str:
    """What a learning platform imports: a row for each student, a column for each chapter, named as its notebook.

    columns: the platform's own, to tell students by; the first holds the name, ``ID`` and ``Identifier`` the number
    that the platform put into a file's name, unless ``people`` (columns of the roster, by student) knows better. A
    chapter that was not handed in, or that the grader itself failed on, is left empty: nobody gets a zero unasked.
    """
    graded = counted(graded, settings)
    stems = sorted({item.stem for item in graded if item.stem}, key=file_stem)
    rows = [(*columns, *(file_stem(stem) for stem in stems))]
    if possible_row:
        most = {item.stem: score(item, settings)[1] for item in graded}
        rows.append(("Points Possible", *[""] * (len(columns) - 1), *(_cell(most[stem]) for stem in stems)))
    for student, items in _by_student(graded).items():
        known = people.get(student, {})
        numbers = {item.lms_id for item in items if item.lms_id}
        number = numbers.pop() if len(numbers) == 1 else ""  # several (Moodle, a new one an assignment): none is theirs
        defaults = {"ID": number, "Identifier": f"Participant {number}" if number else ""}
        points = {item.stem: _cell(_points(item, settings)) for item in items}
        rows.append((student, *(known.get(name) or defaults.get(name, "") for name in columns[1:]),
                     *(points.get(stem, "") for stem in stems)))
    return _csv(rows)


def junit(graded: list[Graded]) -> str:
    """One test case for each mark."""
    suites = ElementTree.Element("testsuites")
    for item in _ordered(graded):
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=_xml(f"{item.student} {item.stem}"),
            tests=str(len(item.marks)),
            failures=str(sum(mark.verdict not in ("pass", "infra") for mark in item.marks)),
            errors=str(sum(mark.verdict == "infra" for mark in item.marks)),
        )
        for mark in item.marks:
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(item.student), name=mark.id)
            if mark.verdict != "pass":
                kind = "error" if mark.verdict == "infra" else "failure"
                ElementTree.SubElement(case, kind, message=mark.verdict).text = _xml(mark.says)
    return ElementTree.tostring(suites, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Text without characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff")


# What a spreadsheet takes for a formula, at the start of a cell or after what may separate cells where it is opened.
FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?= *[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])")


def _csv(rows: list[tuple]) -> str:
    """CSV text; a cell that a spreadsheet would run as a formula gets an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        writer.writerow([FORMULA.sub("'", str(cell)) for cell in row])
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
