#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the autograder from gradescope.zip.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends git bubblewrap libseccomp2 python3.11 python3.11-venv
git clone --quiet https://github.com/@COURSE@ /autograder/llm-internals
git -C /autograder/llm-internals checkout --quiet @REF@
python3.11 -m venv /autograder/venv
/autograder/venv/bin/pip install --quiet -r /autograder/llm-internals/requirements.txt
/autograder/venv/bin/pip install --quiet --no-deps --editable /autograder/llm-internals
