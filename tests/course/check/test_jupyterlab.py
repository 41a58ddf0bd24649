"""A learner in JupyterLab, by keyboard: a wrong answer, its feedback, a hint, the right answer, save, and the grade.

Needs Chromium, playwright and jupyterlab; where ``CI`` is set what is missing fails, elsewhere the module is skipped
and says why. With COURSE_SHOTS=DIR the feedback is also saved as pictures, in both themes.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from course import paths
from course.check import progress
from course.grade.grading import grade_file
from course.running.worker import Worker
from course.specs import exercise, exercises

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("COURSE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
RMS = exercise("transformer_block.rms_norm")
NOTEBOOK = "03_transformer_block.ipynb"
MISTAKE = next(miss for miss in RMS.near_misses if miss.name == "it subtracts the mean")
WRONG = "wide = x.float() - x.float().mean(-1, keepdim=True)"
RIGHT = "wide = x.float()"
REST = "return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight"
STARTED = re.compile(r"http://(?:127\.0\.0\.1|localhost):(\d+)/\S*token=\w+")
SECONDS = 60_000  # milliseconds, of patience for one step on a busy machine


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A copy of the course with a learner's work folder."""
    (tmp_path / "_config.yml").write_text("")
    page, _, anchor = MISTAKE.section.partition("#")
    (tmp_path / "_build" / "html").mkdir(parents=True)
    (tmp_path / "_build" / "html" / page).write_text(f'<!doctype html><h2 id="{anchor}">The section to reread</h2>')
    shutil.copytree(paths.exercises(), tmp_path / "exercises", ignore=shutil.ignore_patterns("work"))
    folder = tmp_path / "exercises" / "work"
    folder.mkdir()
    shutil.copyfile(tmp_path / "exercises" / NOTEBOOK, folder / NOTEBOOK)
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))
    return folder


@pytest.fixture
def lab(work, tmp_path):
    """The address of a Jupyter server of its own; it and its kernels are gone afterwards, or the test fails."""
    if importlib.util.find_spec("jupyterlab") is None:
        missing("jupyterlab")
    home = tmp_path / "jupyter"
    notices = home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    notices.parent.mkdir(parents=True)
    notices.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "IPYTHONDIR": str(home / "ipython"),
                   **{f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
                   "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
                   "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--ip=127.0.0.1", "--allow-root",
               "--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={tmp_path}"]
    log = home / "server.log"
    with log.open("w") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, cwd=work)
    family = []
    try:
        yield address(server, log).replace("/lab?", f"/lab/tree/exercises/work/{NOTEBOOK}?")
        family = psutil.Process(server.pid).children(recursive=True)
        assert family, "no kernel ran"
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        finally:
            server.kill()
    alive = psutil.wait_procs(family, timeout=30)[1]
    for process in alive:
        process.kill()
    assert alive == [], "a kernel outlived its server"


def address(server, log):
    """Where the server listens: it says so in its log when it is ready."""
    deadline = time.monotonic() + SECONDS / 1000
    while not (found := STARTED.search(log.read_text())):
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail("the Jupyter server did not start:\n" + log.read_text()[-3000:])
        time.sleep(0.1)
    return found[0]


def missing(what):
    why = f"needs {what}: pip install -r requirements.txt, and Chromium on the path"
    pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)


@pytest.fixture
def page(lab):
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        missing("Chromium and playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1400, "height": 1000})
        opened.set_default_timeout(SECONDS)
        opened.goto(lab)
        opened.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.isReady")
        opened.wait_for_function(IDLE)
        yield opened
        browser.close()


IDLE = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
CELLS = "window.jupyterapp.shell.currentWidget.content.widgets"


def execute(page, source):
    """Run the cell that has the cursor, which begins with ``source``; returns its outputs once it is done."""
    count = f"{CELLS}.find((c) => c.model.sharedModel.source.startsWith({json.dumps(source)})).model.executionCount"
    before = page.evaluate(count)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(f"{count} && {count} !== {json.dumps(before)} && {IDLE}")
    return cell(page, source).locator(".jp-OutputArea")


def cell(page, source):
    """The cell that begins with this line, scrolled into view."""
    starts = "(source) => CELLS.findIndex((cell) => cell.model.sharedModel.source.startsWith(source))"
    index = page.evaluate(starts.replace("CELLS", CELLS), source)
    assert index >= 0, f"no cell begins with {source!r}"
    found = page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')
    found.scroll_into_view_if_needed()
    return found


def run(page, source):
    """Click into a cell and run it; returns its outputs."""
    cell(page, source).locator(".cm-content").click()
    return execute(page, source)


def retype(page, line, *new):
    """Replace one line of the answer by others, as one does: click, select to its start, type."""
    cell(page, f"# answer: {RMS.id}").locator(".cm-line", has_text=line).click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    for number, text in enumerate(new):
        if number:
            page.keyboard.press("Enter")
        page.keyboard.type(text)


CONTRAST = """(node) => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const paint = (colours) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        const light = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
    };
    const back = paint(['white', ...layers]), front = paint(['white', ...layers, getComputedStyle(node).color]);
    return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
}"""


def look(page, feedback, theme):
    """Every piece of the feedback is legible in this theme and fits its width."""
    page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.locator(f"body[data-jp-theme-name='{theme}']").wait_for(state="attached")
    for part in feedback.locator("dt, dd, code, b, a, .mistake, .hint").all():
        assert part.evaluate(CONTRAST) >= 4.5, f"{part.inner_text()!r} is hard to read in {theme}"
    assert feedback.evaluate("(node) => node.scrollWidth - node.clientWidth") <= 0, "the feedback is cut off"
    if os.environ.get("COURSE_SHOTS"):
        folder = Path(os.environ["COURSE_SHOTS"])
        page.screenshot(path=folder / f"lab-{theme.replace(' ', '-')}.png")


def read_on(page, answer):
    """The link of the feedback leads to the section, in a tab of JupyterLab."""
    retype(page, RIGHT, WRONG)
    run(page, answer)
    run(page, f'check("{RMS.id}")').locator(".cf a").click()
    page.locator(".jp-HTMLViewer iframe").wait_for()
    page.frame_locator(".jp-HTMLViewer iframe").get_by_text("The section to reread").wait_for()


def test_from_a_wrong_answer_to_a_saved_right_one(page, work):
    answer, check = f"# answer: {RMS.id}", f'check("{RMS.id}")'
    run(page, "import")
    retype(page, "raise NotImplementedError()", WRONG, REST)
    run(page, answer)
    output = run(page, check)
    feedback = output.locator(".cf")
    told = feedback.inner_text()
    for words in (RMS.id, MISTAKE.name, MISTAKE.says, "came", "expected", f"hint({RMS.id!r})".replace("'", '"')):
        assert words in told, told
    below = output.locator("[data-mime-type='application/vnd.jupyter.stderr']").inner_text()
    assert below.strip() == told.splitlines()[0], "the feedback is not said twice"
    assert feedback.locator("a").inner_text() == MISTAKE.section
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        look(page, feedback, theme)

    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.type(f'hint("{RMS.id}")')
    assert f"Hint 1 of 3: {RMS.hints[0]}" in execute(page, "hint(").inner_text()

    retype(page, "wide = x.float()", RIGHT)
    run(page, answer)
    output = run(page, check)
    assert output.inner_text().strip() == f"{RMS.id}: all checks pass"
    page.keyboard.press("Control+s")
    page.locator(".lm-TabBar-tab.jp-mod-current:not(.jp-mod-dirty)").first.wait_for()
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")

    with Worker() as worker:
        report = grade_file(worker, work / NOTEBOOK, None, b"a secret")
    assert {verdict.exercise.id: verdict.kind for verdict in report.verdicts} == {
        item.id: "pass" if item is RMS else "missing" for item in exercises("transformer_block")
    }
    assert report.warnings == []
    read_on(page, answer)
    noted = progress.read(work).entries[RMS.id]
    assert (noted["tries"], noted["solved"], noted["was_solved"]) == (3, False, True)
