"""The command, most of it in this process; signals and pipes in processes of their own."""

import io
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from llm_internals import checkpoint, cli
from llm_internals.errors import CheckpointError

FRANCE = "The capital of France is"


@pytest.fixture
def run(smollm2, monkeypatch, capsys):
    """run(*arguments, stdin="") -> (exit code, stdout, stderr), with the model that is loaded already."""
    monkeypatch.setattr(checkpoint, "load", lambda *arguments: smollm2)

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            code = cli.main(["generate", *arguments])
        except SystemExit as stopped:
            code = stopped.code
        return code, *capsys.readouterr()

    return run


def test_continues_a_text(run):
    code, out, err = run(FRANCE, "--max-tokens", "2")
    assert (code, out, err) == (0, " Paris.\n", "")


def test_stats_go_to_stderr(run):
    code, out, err = run(FRANCE, "--max-tokens", "3", "--stats")
    assert code == 0
    assert out.startswith(" Paris.")
    assert re.fullmatch(
        r"5 prompt tokens, 3 output tokens, TTFT \d+ ms, TPOT [\d.]+ ms, [\d.]+ tokens/s \([\d.]+ s in all\)\n", err
    )


def test_no_cache_gives_the_same_text(run):
    assert run(FRANCE, "--max-tokens", "5", "--no-cache") == run(FRANCE, "--max-tokens", "5")


def test_seeds(run):
    def draw(seed):
        return run(FRANCE, "--max-tokens", "8", "--temperature", "1.5", "--seed", seed)

    assert draw("1") == draw("1")
    assert draw("1") != draw("2")


def test_chat_ends_at_the_end_of_the_turn(run):
    code, out, _ = run("What is the capital of France? One word.", "--chat", "--max-tokens", "40")
    assert code == 0
    assert "Paris" in out
    assert "<|im_end|>" not in out


def test_prompt_from_standard_input(run):
    assert run("-", "--max-tokens", "2", stdin=FRANCE) == (0, " Paris.\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "the prompt is empty"),
        (["x" * 5, "--max-tokens", "9000"], "more than the 8192 positions of this model"),
        (["x", "--max-tokens", "0"], "'0' is not a positive whole number"),
        (["x", "--max-tokens", "many"], "'many' is not a positive whole number"),
        (["x", "--temperature", "-1"], "'-1' is not a number from 0 up"),
        (["x", "--temperature", "nan"], "'nan' is not a number from 0 up"),
        (["x", "--seed", "one"], "'one' is not a whole number of 64 bits"),
        (["x", "--seed", "9" * 30], "is not a whole number of 64 bits"),
        (["x", "--seed", "9" * 5000], "is not a whole number of 64 bits"),
        (["x", "--dtype", "fp8"], "invalid choice: 'fp8'"),
        (["x", "--beam"], "unrecognized arguments: --beam"),
        ([], "arguments are required: prompt"),
        (["\udcff"], "surrogate"),
    ],
)
def test_a_wrong_argument_is_one_line_and_code_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_standard_input_that_is_not_utf8(run, monkeypatch):
    class Latin1:
        def read(self):
            return "caf\xe9 au lait".encode("latin-1").decode("utf-8")

    monkeypatch.setattr(io, "StringIO", lambda text: Latin1())
    code, out, err = run("-")
    assert (code, out) == (2, "")
    assert err == ("llm-internals: standard input is not UTF-8: byte 0xe9 at place 3 starts no character. "
                   "Convert it first, as in: iconv -f latin1 -t utf-8\n")  # fmt: skip


def test_a_model_that_is_not_there(capsys):
    assert cli.main(["generate", "x", "--model", "no/such/folder"]) == 2
    assert "neither 'smollm2-135m' nor a folder" in capsys.readouterr().err


def test_a_folder_without_tokenizer(capsys, write_hf_llama):
    assert cli.main(["generate", "x", "--device", "cpu", "--model", str(write_hf_llama()[0])]) == 2
    assert "holds no tokenizer.json" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_loaded(monkeypatch, capsys):
    def fail(*arguments):
        raise CheckpointError("no network. Mend it")

    monkeypatch.setattr(checkpoint, "load", fail)
    assert cli.main(["generate", "x"]) == 1
    assert capsys.readouterr().err == "llm-internals: no network. Mend it\n"


def start(*arguments, **options):
    command = [sys.executable, "-m", "llm_internals.cli", "generate", FRANCE, "--device", "cpu", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A job in the background of a shell ignores Ctrl-C, and so would what it starts.
    options.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options)


def test_text_is_streamed_and_ctrl_c_is_clean():
    process = start("--max-tokens", "5000", "--stats")
    killer = threading.Timer(120, process.kill)
    killer.start()
    first = process.stdout.read(7)  # comes long before the end
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    killer.cancel()
    assert first == b" Paris."
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"interrupted" in err
    assert b"TTFT" in err  # what was done so far


def test_a_reader_that_goes_away_is_no_error():
    process = start("--max-tokens", "5000")
    killer = threading.Timer(120, process.kill)
    killer.start()
    process.stdout.read(1)
    process.stdout.close()
    err = process.stderr.read()
    process.wait()
    killer.cancel()
    assert process.returncode == 141
    assert err == b""
