"""JUnit: one test case for each mark."""

from __future__ import annotations

from xml.etree import ElementTree

from course.grade.batch import Graded
from course.reports.score import ordered


def junit(graded: list[Graded]) -> str:
    """One test case for each mark."""
    suites = ElementTree.Element("testsuites")
    for item in ordered(graded):
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
                ElementTree.SubElement(case, kind, message=mark.verdict).text = _xml(mark.says or item.unreadable)
    return ElementTree.tostring(suites, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Text without characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff")
