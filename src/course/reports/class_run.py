"""One run of `course grade`: who is graded, the stream of results, and the reports at its end."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course import paths as places
from course.classroom import gradescope, identity, settings, shards
from course.classroom.roster import enrolled_only, roster_rows
from course.grade import batch, secret, variants
from course.reports import merge, publish
from course.running.sandbox import Probe
from course.running.zygote import Zygote
from course.specs import exercise


@dataclass(frozen=True)
class Order:
    """What was asked for: the arguments of `course grade`, which says what each is."""

    paths: list[Path]
    report: Path | None = None
    settings: Path | None = None
    roster: Path | None = None
    student: str | None = None
    gradescope: Path | None = None
    workers: int = 0
    shard: str | None = None
    rerun: frozenset[str] = frozenset()
    all_attempts: bool = False
    require_sandbox: bool = False
    ray: str | None = None
    backend: str | None = None


class ClassRun:
    """An order as it is carried out. ``done`` grows while :meth:`stream` is read; ``lost`` went away with a machine.

    Raises ValueError for an order that cannot be carried out, before anything is graded.
    """

    def __init__(self, order: Order, probe: Probe):
        if order.ray and not order.report:
            raise ValueError("--ray needs --report DIR: a class that takes several machines is not read on the screen")
        self.order, self.probe = order, probe
        self.settings = settings.read(order.settings)
        for name in order.rerun:
            exercise(name)  # says which there are when there is no such one
        self.enrolled = roster_rows(order.roster) if order.roster else []
        self.notes: list[str] = []
        self.done: list[batch.Graded] = []
        self.lost: list[identity.Handed] = []
        self.named = order.student or ""  # whose all of it is
        if order.gradescope:
            self.named = gradescope.submitter(order.gradescope, self.enrolled, self.settings.variants)
        found = self._find()
        self.earlier = merge.earlier(order.report)
        self.handed = self._chosen(found)
        if probe.backend == "none" and order.require_sandbox:
            raise ValueError("no sandbox works here, and --require-sandbox was given: nothing was graded")

    def _find(self) -> list[identity.Handed]:
        """All that was handed in, and whose it is."""
        roster = {row.match: row.student for row in self.enrolled}
        found = identity.find(self.order.paths, roster)
        if self.named:
            found = identity.all_of(self.named, found)
        else:
            self.notes += identity.notes(self.order.paths, roster, found)
        if self.settings.variants:
            enrolled_only(found, roster)
        return found

    def _chosen(self, found: list[identity.Handed]) -> list[identity.Handed]:
        """Of all that was handed in what counts, and of that this shard's part."""
        if self.order.report and not self.order.all_attempts:
            found, left_out = identity.choose(found, self.settings.attempts, self.settings.attempt)
            self.notes += identity.left_out_notes(left_out, found)
        return shards.shard(found, self.order.shard) if self.order.shard else found

    @functools.cached_property
    def secret(self) -> bytes:
        """What hidden inputs come from."""
        return variants.shared_secret() if self.settings.variants else secret.read(self.folder)

    @property
    def folder(self) -> Path:
        """Where marks are kept."""
        return self.order.report or places.state()

    @functools.cached_property
    def marks(self) -> batch.Marks:
        """What is kept on disk, mark by mark."""
        return batch.Marks(self.folder / "marks", self.secret)

    def stream(self, launched: Zygote | None = None) -> Iterator[batch.Graded]:
        """Graded submissions, in the order in which they are done. ``launched``: a worker process started early."""
        order, marks = self.order, self.marks
        if order.ray:
            from course.grade import distribute

            results = distribute.grade_all(self.handed, self.secret, marks, order.ray, order.backend, order.rerun,
                                           self.settings.variants, order.require_sandbox, on_lost=self.lost.append)
        else:
            workers = order.workers or os.cpu_count() or 1
            results = batch.grade_all(self.handed, self.secret, marks, workers, order.backend, order.rerun,
                                      personal=self.settings.variants, launched=launched)
        with contextlib.closing(results):
            for graded in results:
                self.done.append(graded)
                yield graded

    @property
    def failed(self) -> int:
        """Answers on which the grader itself failed."""
        return sum(mark.verdict == "infra" for graded in self.done for mark in graded.marks)

    def publish(self) -> list[str]:
        """Write all reports, with what was graded into the same folder before. Returns what there is to say."""
        order, chosen = self.order, self.settings
        finished = batch.in_order(self.done, self.handed)
        united, more = merge.together(self.earlier, finished, chosen, order.all_attempts, same_names=not self.named)
        people = {row.student: row.columns for row in self.enrolled}
        notes = [*publish.to_do(united, chosen, {} if order.shard else people), *self.notes,
                 *publish.settings_changed(order.report, chosen), *more,
                 *merge.outdated(united, batch.version(self.secret, chosen.variants))]
        publish.publish(united, order.report, chosen, people, notes)
        return notes
