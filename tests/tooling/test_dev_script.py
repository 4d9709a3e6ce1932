"""The script `dev` sets up once, never half, and hands on what its tools say; tried with a Python that only pretends."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, state_of, until

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

# Makes an environment that holds a copy of itself, and notes each installation, which lasts for as long as the file HELD
# is there.
PRETEND_PYTHON = """#!/bin/sh
case "$1 ${2:-} ${3:-}" in
  *'sys.exit('*) [ -z "${PRETEND_OLD:-}" ] ;;
  *'import ensurepip'*) [ -z "${PRETEND_NO_VENV:-}" ] ;;
  *version_info*) echo "${PRETEND_VERSION:-3.11}" ;;
  '--version '*) echo 'Python 3.11.0' ;;
  '-m venv --clear') rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
  '-m pip install')
    echo install >>"$NOTES"
    echo 'Collecting something'
    while [ -e "$HELD" ]; do sleep 0.1; done
    echo 'the last words of pip'
    exit "${PRETEND_PIP_RC:-0}"
    ;;
  '-m compileall '*) echo 'compiled' ;;
  '-m pytest '*) echo "pytest: $*"; exit "${PRETEND_PYTEST_RC:-0}" ;;
  *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""

Dev = Callable[..., subprocess.CompletedProcess[str]]


class Checkout:
    """A folder with the script, and a PATH whose only Python is the pretended one."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.root.mkdir()
        self.notes = folder / "notes"
        self.notes.touch()
        for name in ("dev", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.root / name)
        commands = folder / "bin"
        commands.mkdir()
        for name in (
            "cat",
            "cksum",
            "date",
            "dirname",
            "mkdir",
            "mv",
            "rm",
            "rmdir",
            "sh",
            "sleep",
            "tail",
            "uname",
            "cp",
        ):
            found = shutil.which(name)
            assert found is not None
            (commands / name).symlink_to(found)
        (commands / "python3").write_text(PRETEND_PYTHON)
        (commands / "python3").chmod(0o755)
        self.held = folder / "held"
        self.env = {"PATH": str(commands), "NOTES": str(self.notes), "HELD": str(self.held)}

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [shutil.which("dash") or "/bin/sh", str(self.root / "dev"), *arguments],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **env)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def start_held(self) -> subprocess.Popen[str]:
        """Start a set-up that is in the midst of its installation, until `held` is deleted."""
        self.held.touch()
        process = self.start("setup")
        until(lambda: self.installations or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    @property
    def installations(self) -> int:
        return self.notes.read_text().count("install")

    @property
    def stamp(self) -> Path:
        return self.root / ".venv" / ".dev-stamp"

    @property
    def lock(self) -> Path:
        return self.root / ".venv.lock"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_run_sets_up_and_the_second_does_not(checkout: Checkout) -> None:
    first = checkout.run("test", "-k", "two words")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "pytest: -m pytest -k two words\n"
    assert "setting up .venv" in first.stderr
    second = checkout.run("test")
    assert second.stderr == ""
    assert checkout.installations == 1


@pytest.mark.parametrize("asked", [[], ["--all"]])
def test_a_run_of_all_folders_uses_three_processes_for_each_processor(checkout: Checkout, asked: list[str]) -> None:
    words = checkout.run("test", *asked).stdout.split()
    assert words[: 3 + len(asked)] == ["pytest:", "-m", "pytest", *asked]
    assert words[3 + len(asked) :][:2] == ["--numprocesses", str(3 * min(os.cpu_count() or 2, 8))]


@pytest.mark.parametrize(("free_kb", "asked"), [(8 << 20, []), (8 << 20, ["--all"]), (1 << 20, [])])
def test_a_plain_run_keeps_its_files_in_memory_where_there_is_room(
    checkout: Checkout, tmp_path: Path, free_kb: int, asked: list[str]
) -> None:
    memory, commands = tmp_path / "memory", Path(checkout.env["PATH"])
    (commands / "chmod").symlink_to(shutil.which("chmod") or "/bin/chmod")
    (commands / "df").write_text(f"#!/bin/sh\necho Filesystem\necho tmpfs 0 0 {free_kb} 0% /dev/shm\n")
    (commands / "df").chmod(0o755)
    left, used = memory / "anabranch-tests-999999999", memory / f"anabranch-tests-{os.getpid()}"
    for folder in (left, used):
        folder.mkdir(parents=True)
    run = checkout.start("test", *asked, ANABRANCH_TESTS_IN=str(memory))
    said = run.communicate(timeout=PATIENCE_S)[0]
    there = not asked and free_kb == 8 << 20
    assert said.endswith("-o tmp_path_retention_policy=failed\n") is there
    assert (memory / f"anabranch-tests-{run.pid}").exists() is there
    assert left.exists() is not there, "a run that was killed has left it"
    assert used.exists()


def test_the_exit_code_of_the_tests_is_handed_on(checkout: Checkout) -> None:
    assert checkout.run("test", PRETEND_PYTEST_RC="5").returncode == 5


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_sets_up_again(checkout: Checkout, name: str) -> None:
    checkout.run("setup")
    file = checkout.root / name
    file.write_text(f"# changed\n{file.read_text()}")
    checkout.run("setup")
    assert checkout.installations == 2


def test_what_configures_checks_and_tests_changes_no_environment(checkout: Checkout) -> None:
    checkout.run("setup")
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    checkout.run("setup")
    assert checkout.installations == 1


def test_a_replaced_python_sets_up_again(checkout: Checkout) -> None:
    checkout.run("setup")
    checkout.run("setup", PRETEND_VERSION="3.13")
    assert checkout.installations == 2


def test_a_moved_checkout_sets_up_again(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("setup")
    checkout.root = checkout.root.rename(tmp_path / "moved")
    checkout.run("setup")
    assert checkout.installations == 2


def test_a_failed_installation_leaves_no_stamp_and_no_lock(checkout: Checkout) -> None:
    failed = checkout.run("test", PRETEND_PIP_RC="1")
    assert failed.returncode == 1
    assert "the last words of pip" in failed.stderr
    assert "./dev setup" in failed.stderr
    assert failed.stdout == ""
    assert not checkout.stamp.exists()
    assert not checkout.lock.exists()
    assert checkout.run("setup").returncode == 0
    assert checkout.stamp.exists()


def test_runs_that_start_together_set_up_once(checkout: Checkout) -> None:
    checkout.held.touch()
    runs = [checkout.start("test") for _ in range(5)]
    until(lambda: checkout.installations)
    checkout.held.unlink()
    answers = [run.communicate(timeout=PATIENCE_S) for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs), answers
    assert checkout.installations == 1
    assert not checkout.lock.exists()


@pytest.mark.slow
def test_a_killed_set_up_is_taken_over_by_one_of_those_who_wait(checkout: Checkout) -> None:
    killed = checkout.start_held()
    killed.kill()
    checkout.held.unlink()  # what it has started goes on, and holds its pipes
    killed.communicate(timeout=PATIENCE_S)
    assert checkout.lock.exists()
    runs = [checkout.start("setup") for _ in range(4)]
    answers = [run.communicate(timeout=PATIENCE_S) for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs), answers
    assert any("was killed" in err for _, err in answers)
    assert checkout.installations == 2
    assert not checkout.lock.exists()


def test_a_killed_set_up_that_nobody_has_waited_for_is_taken_over(checkout: Checkout) -> None:
    killed = checkout.start_held()
    killed.kill()
    checkout.held.unlink()
    try:
        until(lambda: state_of(killed.pid) == "Z")
        done = checkout.run("setup")  # its parent, this test, has not asked how it ended: it is a zombie
        assert done.returncode == 0, done.stderr
        assert "was killed" in done.stderr
    finally:
        killed.communicate(timeout=PATIENCE_S)


def test_a_lock_whose_owners_id_another_process_has_now_is_taken_over(checkout: Checkout) -> None:
    checkout.lock.mkdir()
    (checkout.lock / "owner").write_text(f"{os.getpid()} {os.uname().nodename} 1\n")
    done = checkout.run("setup")
    assert done.returncode == 0, done.stderr
    assert "was killed" in done.stderr


@pytest.mark.slow
def test_a_lock_that_names_no_owner_is_waited_for_and_then_removed(checkout: Checkout) -> None:
    checkout.lock.mkdir()
    began = time.monotonic()
    done = checkout.run("setup")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began > 5
    assert checkout.installations == 1


def test_an_interrupted_set_up_gives_the_lock_back(checkout: Checkout) -> None:
    run = checkout.start_held()
    run.terminate()
    checkout.held.unlink()
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode != 0
    assert not checkout.lock.exists()
    assert not checkout.stamp.exists()


def test_a_newer_python_by_another_name_is_found(checkout: Checkout, tmp_path: Path) -> None:
    newer = tmp_path / "bin" / "python3.12"
    newer.write_text(PRETEND_PYTHON)
    newer.chmod(0o755)
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert checkout.run("setup").returncode == 0
    assert checkout.installations == 1


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"PRETEND_OLD": "1", "PRETEND_VERSION": "3.9"}, "Python 3.11 or newer is needed; python3 is 3.9"),
        ({"PRETEND_NO_VENV": "1"}, "install its venv module"),
        ({"ANABRANCH_PYTHON": "/nowhere/python"}, "ANABRANCH_PYTHON=/nowhere/python"),
    ],
)
def test_a_python_that_does_not_fit_is_one_clear_message(checkout: Checkout, env: dict[str, str], message: str) -> None:
    done = checkout.run("test", **env)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not checkout.lock.exists()


def test_an_unknown_verb_shows_the_help_and_exits_with_2(checkout: Checkout) -> None:
    done = checkout.run("frobnicate")
    assert done.returncode == 2
    assert "no verb 'frobnicate'" in done.stderr
    assert checkout.run("help").stdout in done.stderr
    assert checkout.installations == 0


def test_the_pins_name_no_index_and_no_place() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(pins) > 20
    assert [pin for pin in pins if pin.count("==") != 1 or set(pin) & set("/@: ")] == []


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_the_scripts_are_plain_shell_and_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert (ROOT / script).read_text().startswith("#!/bin/sh\n")
    subprocess.run([shutil.which("dash") or "/bin/sh", "-n", str(ROOT / script)], check=True)
