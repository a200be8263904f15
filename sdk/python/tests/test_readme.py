"""Every example of the README, in order, as somebody would type it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from world import ROOT, World

HERE = Path(__file__).resolve().parent.parent
README = (HERE / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_every_example_in_python_runs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A place of its own, in which the examples find what is in the repository.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASH_SERVER_URL", world.url)
    monkeypatch.setenv("ASH_API_KEY", world.key)
    examples = [code for language, code in BLOCKS if language == "python"]
    assert len(examples) > 7
    names: dict[str, object] = {}
    for code in examples:
        exec(compile(code, f"README.md: {code.splitlines()[0]}", "exec"), names)
    said = capsys.readouterr().out
    for expected in ("active warm intact", "(end_turn)", "no such session: not_found", "frogs.md", "Green."):
        assert expected in said, expected


def test_nothing_on_the_page_is_left_out() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}


def test_the_package_installs_in_a_fresh_place(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    shell = [code for language, code in BLOCKS if language == "sh"]
    assert len(shell) == 1
    # A copy: pip leaves something behind in the directory that it installs from.
    shutil.copytree(HERE, tmp_path / "sdk" / "python", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    environment = {"PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin", **_pip()}
    subprocess.run(["sh", "-euc", shell[0]], cwd=tmp_path, env=environment, check=True)
    program = "import ash_sdk, importlib.resources as r; assert r.files('ash_sdk').joinpath('py.typed').is_file(); "
    program += "ash_sdk.AshClient('http://127.0.0.1:1'); print(ash_sdk.__file__, ash_sdk.__version__)"
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout


def _pip() -> dict[str, str]:
    """How pip is set up here."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME", "SSL_", "HTTP"))}
