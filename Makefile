# Everything the course needs, from a fresh clone. `make` alone lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BOOK   := _build/html/index.html
TIMES  := _build/times
NBVAL  := --nbval --nbval-current-env --nbval-cell-timeout 300 --color=no -p no:cacheprovider

.DEFAULT_GOAL := help
.PHONY: help book page lab test test-full lint unit notebooks browser grade clean versions benchmarks budget

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): requirements.txt pyproject.toml
	@echo "== installing into $(VENV) (only when requirements.txt or pyproject.toml changed)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -m compileall -q src  # as pip does for what it copies: the sandbox cannot write byte code
	@touch $@

book: $(STAMP)  ## build the book on the real model; a page is run again when it, or code it imports, changed
	@echo "== building the book (chapters run a real language model; a few minutes, less when little changed)"
	@OMP_NUM_THREADS=1 $(BIN)/jupyter-book build book --config _config.yml -W -n --keep-going -q || \
	  { rm -rf _build/.doctrees; exit 1; }  # or the warnings of unchanged pages would not come again
	@echo "== done. Open it in a browser:  file://$(CURDIR)/$(BOOK)"

page: $(STAMP)  ## build one page, others left unexecuted: make page PAGE=04_kv_cache
	@test -f "book/$(PAGE).md" || { echo 'say which: make page PAGE=04_kv_cache'; exit 2; }
	@COURSE_PAGE=$(PAGE) OMP_NUM_THREADS=1 $(BIN)/jupyter-book build book --config _config.yml -q \
	  --path-output _build/page
	@echo "== done. Open it in a browser:  file://$(CURDIR)/_build/page/_build/html/$(PAGE).html"

lab: $(STAMP)  ## copy missing exercises to exercises/work and open JupyterLab there
	@$(BIN)/course start
	@$(BIN)/jupyter lab exercises/work

lint: $(STAMP)
	@echo "== lint"
	@$(BIN)/ruff check .

unit: $(STAMP)
	@echo "== unit tests"
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile -m "not browser and not slow" --junitxml=$(TIMES)/unit.xml tests

notebooks: $(STAMP)
	@echo "== notebooks agree with their sources, and every checker is proved (two at a time)"
	@mkdir -p $(TIMES)
	@{ echo "build --check"; $(BIN)/python -c "from course.specs import CHAPTERS; [print('proof', s) for s in CHAPTERS]"; } \
	  | OMP_NUM_THREADS=1 xargs -P 2 -I{} sh -c 'set -e; start=$$(date +%s); $(BIN)/course {}; \
	    echo $$(($$(date +%s) - start)) > "$(TIMES)/$$(echo {} | tr " " -)"'
	@echo "== solutions pass under nbval"
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q $(NBVAL) -n 2 --dist loadfile solutions

$(BOOK):
	@$(MAKE) --no-print-directory book

browser: $(STAMP) $(BOOK)
	@echo "== the book in a real browser"
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m browser --junitxml=$(TIMES)/browser.xml tests

budget: $(STAMP)  ## what each chapter cost in the last `make book` and `make test`
	@$(BIN)/python benchmarks/budget.py

test: lint unit notebooks browser budget  ## everything CI checks

test-full: $(STAMP) $(BOOK) lint notebooks  ## the long form, an hour and more: all attacks, both sandboxes, both routes, Ray
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]'
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile tests

versions: $(STAMP)  ## kernelcheck's tests on the oldest and the newest Triton it supports, each in its own environment
	@$(BIN)/python tests/kernelcheck/run_versions.py

benchmarks: $(STAMP)  ## the measurements that need no GPU: grading a class, beside nbgrader, a checked kernel's cost
	@$(BIN)/python benchmarks/grading.py
	@$(BIN)/python benchmarks/nbgrader.py
	@$(BIN)/python benchmarks/kernelcheck_cost.py

grade: $(STAMP)  ## grade notebooks: make grade PATHS="folder or notebook"
	@test -n "$(PATHS)" || { echo 'say what to grade: make grade PATHS=exercises/work'; exit 2; }
	@$(BIN)/course grade $(PATHS)

clean:  ## remove what was built; your answers in exercises/work stay
	rm -rf _build .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +
