"""Run kernelcheck's tests on the first and the last release of Triton that it supports: one command.

    python tests/kernelcheck/run_versions.py [--venvs DIR] [VERSION ...] [-- pytest arguments]

Each release gets a virtual environment that holds Triton alone; the packages of the environment that runs this
stand behind it, so that nothing is installed twice.
"""

import argparse
import pathlib
import subprocess
import sys
import sysconfig
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ("3.6.0", "3.9.0")


def environment(version: str, folder: pathlib.Path) -> pathlib.Path:
    """The Python of an environment with that Triton, made if it is not there."""
    home = folder / f"triton-{version}"
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        venv.create(home, with_pip=False, symlinks=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A .pth file adds its lines behind the environment's own packages: what is installed here comes first.
    (pathlib.Path(site) / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    probe = subprocess.run([python, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True)
    if probe.stdout.strip() != version:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, f"triton=={version}"],
            check=True,
        )
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "_build" / "triton-versions")
    own, rest = sys.argv[1:], []
    if "--" in own:
        rest = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    options = parser.parse_args(own)
    results = {}
    for version in options.versions:
        python = environment(version, options.venvs.resolve())
        print(f"== Triton {version}", flush=True)
        arguments = rest or ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
        results[version] = subprocess.run(
            [python, "-m", "pytest", "tests/kernelcheck", *arguments], cwd=ROOT
        ).returncode
    for version, code in results.items():
        print(f"Triton {version}: {'passed' if code == 0 else f'FAILED ({code})'}")
    return max(results.values())


if __name__ == "__main__":
    sys.exit(main())
