"""The wheel: built from the sources, installed into an empty environment without a network, it fills a blank."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytest.importorskip("setuptools", "77", reason="building a wheel needs setuptools")
ROOT = Path(__file__).parents[2]
# Whatever wants to reach another machine fails in the environment of this test.
OFFLINE = """
import socket

def refuse(*_):
    raise OSError("there is no network here")

socket.socket.connect = refuse
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("ddot", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):  # what a build leaves stays out of here
        (sources / name).symlink_to(ROOT / name)
    command = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", built, sources]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = built.iterdir()
    return file


@pytest.mark.slow
def test_the_wheel_fills_a_blank_in_an_empty_environment(wheel, tmp_path):
    place = tmp_path / "empty"
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)  # all that installing a wheel of plain Python does, but for the scripts
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))  # torch and the rest
    (packages / "sitecustomize.py").write_text(OFFLINE)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def python(*arguments):
        done = subprocess.run(
            [place / "bin" / "python", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert python("-c", "import ddot; print(ddot.__file__)").startswith(str(packages))
    filled = python("-m", "ddot", "infill", "We were so ___{1,6} wedding.")
    assert filled.startswith("We were so ")
    assert filled.endswith(" wedding.\n")


@pytest.mark.slow
def test_the_metadata_is_ready_for_a_release(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        about = Parser().parsestr(file.read(metadata).decode())
        (scripts,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "ddot = ddot.__main__:main" in file.read(scripts).decode()
    assert about["Name"] == "ddot-infill"
    assert about["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert {"ray", "serve", "plots", "hub"} <= set(about.get_all("Provides-Extra"))
    licenses = {Path(name).name for name in names if "dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "NOTICE"} == set(about.get_all("License-File"))
    assert {"ddot/py.typed", "ddot/model/config.json", "ddot/serve/page.html", "ddot/data/toy.txt"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "build", "results"))]
